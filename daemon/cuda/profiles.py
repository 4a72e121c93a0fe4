"""The warm state for CUDA units: which sets of flags have it, and its life.

A profile is what one set of flags needs: nvcc's plan for them, the host's prelude, and levels of fork servers. Profiles
are made in the background, one at a time, when the machine is quiet; the least recently used is closed when there are
too many, or when they hold too much memory.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from warmcc import digest, paths
from warmcc.daemon import keys
from warmcc.daemon.closure import ChangedDuringBuild, Closures
from warmcc.daemon.cuda import host, level, nvcc, overlay
from warmcc.daemon.cuda.level import Level
from warmcc.daemon.cuda.servers import SOCKETS, Library, ServerDied
from warmcc.daemon.process import Runner
from warmcc.daemon.profiles import prelude, sharing
from warmcc.daemon.profiles.pch import Finish
from warmcc.daemon.toolchain import Toolchain
from warmcc.daemon.toolchain.cuda import Cuda
from warmcc.daemon.toolchain.flags import folders, split
from warmcc.daemon.zygote.plan import Plan
from warmcc.request import Request

log = logging.getLogger(__name__)

MOST = 3  # profiles with fork servers at a time
RETRY_SECONDS = 600.0
_NAME = "TORCH_EXTENSION_NAME"
_DEBUG = {"-g", "-G", "--debug", "--device-debug", "-lineinfo", "--generate-line-info"}
_HEADER_VARIABLES = {"CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"}
_EXTRA = re.compile(r"(?:cub|thrust|cuda|cute|cutlass)/")  # libraries that cost seconds
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b(.*)$", re.M)
_SAFE = {"defined", "true", "false", "NDEBUG", "CUDA_VERSION", "CUDART_VERSION", "USE_ROCM"}
# An include in quotes is a header of the user's, which may ask for anything.
_SEES_HEADERS = re.compile(r"__has_include\w*|__COUNTER__|__INCLUDE_LEVEL__|#[ \t]*include[ \t]*\"[^\"\n]*\"")
_OF_CUDA = re.compile(r"\b(?:(?:at|c10)::cuda\b|C10_CUDA_\w+|AT_CUDA_\w+)")
_INCLUDES_CUDA = re.compile(r"#[ \t]*include[ \t]*<(?:ATen|c10)/cuda/")
_OURS = frozenset(("torch", "ATen", "c10"))

Finisher = Callable[[Toolchain], Awaitable[Finish | None]]


@dataclass(eq=False)
class Profile:
    """The warm state of one set of flags and ``extras``, headers of the toolkit's libraries that units begin with."""

    key: str
    flags: list[str]
    extras: tuple[str, ...]
    plan: nvcc.Plan
    environment: dict[str, str]
    state: str = "building"
    memory: int = 0  # bytes that its servers hold, as they started
    reason: str = ""
    host: host.HostPrelude | None = None
    levels: dict[str, Level] = field(default_factory=dict)
    used: float = field(default_factory=time.monotonic)
    failed_at: float = 0.0


class CudaProfiles:
    """All of a daemon. Methods are called on the event loop."""

    def __init__(
        self, root: Path, closures: Closures, runner: Runner, *, quiet: Callable[[], Awaitable[None]],
        finisher: Finisher | None, timeout: float, memory: int,
    ) -> None:  # fmt: skip
        self.root = root
        self._closures = closures
        self._runner = runner
        self._quiet = quiet
        self._finisher = finisher
        self._timeout = timeout
        self._memory = memory
        self._library = Library(root, runner)
        self._hosts = host.Hosts(root / "host", closures, runner, timeout=timeout)
        self._plans: dict[str, nvcc.Plan] = {}
        self._one_at_a_time = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self.by_key: dict[str, Profile] = {}
        self.dropped: Counter[str] = Counter()

    def open(self) -> None:
        """Remove what an earlier daemon's servers left."""
        for left in paths.runtime_dir().glob(SOCKETS):
            left.unlink(missing_ok=True)
        shutil.rmtree(self.root / "servers", ignore_errors=True)

    async def find(self, request: Request, toolchain: Toolchain, plan: Plan, text: str) -> Profile | str:
        """The profile that may compile a unit now, or why there is none. Raises OSError."""
        if (reason := why_not(request, plan) or why_not_lean(text)) is not None:
            return reason
        toolkit = toolchain.cuda
        assert toolkit is not None
        flags = [word for word in split(f"{plan.cuda_cflags} {plan.cuda_post_cflags}") if f"-D{_NAME}=" not in word]
        environment = environment_of(request, toolkit)
        try:
            steps = await self._plan(toolkit, flags, environment)
        except nvcc.NotUnderstood as error:
            return f"nvcc's plan: {error}"
        extras = tuple(sorted(name for name in set(prelude.leading(text)) if _EXTRA.match(name)))
        key = digest.of_value([toolchain.digest, toolkit.digest, flags, extras, keys.keyed_environment(request)])
        profile = self.by_key.get(key)
        if profile is not None and profile.state == "ready" and not self._holds(profile):
            profile = None
        if profile is None or (profile.state == "failed" and time.monotonic() - profile.failed_at > RETRY_SECONDS):
            profile = self.by_key[key] = Profile(key, flags, extras, steps, environment)
            self._spawn(self._build(profile, toolchain))
        if profile.state != "ready":
            return "not warm yet" if profile.state == "building" else f"could not be made warm: {profile.reason}"
        profile.used = time.monotonic()
        return profile

    def _holds(self, profile: Profile) -> bool:
        """Whether its servers live, and have read what the headers still say."""
        assert profile.host is not None
        if not profile.levels["lean"].alive:
            cause = "a fork server died"
        elif not self._closures.holds(profile.host.closure):
            cause = "a header changed"
        else:
            return True
        self.drop(profile, cause)
        return False

    def drop(self, profile: Profile, cause: str) -> None:
        """Close a profile's servers; the next request makes it anew."""
        log.warning("CUDA profile %s dropped: %s", profile.key[:12], cause)
        self.dropped[cause] += 1
        if self.by_key.get(profile.key) is profile:
            del self.by_key[profile.key]
        self._spawn(self._close(profile))

    def distrust(self, profile: Profile, reason: str) -> None:
        """Close a profile for good: what it made was wrong."""
        self.drop(profile, "made something else than nvcc")
        profile.state, profile.reason, profile.failed_at = "failed", reason, float("inf")
        self.by_key[profile.key] = profile

    async def _close(self, profile: Profile) -> None:
        for found in list(profile.levels.values()):
            await found.close()
        await asyncio.to_thread(shutil.rmtree, self._folder(profile), True)

    def _folder(self, profile: Profile) -> Path:
        return self.root / "servers" / f"{profile.key[:16]}-{id(profile):x}"

    async def _plan(self, toolkit: Cuda, flags: list[str], environment: dict[str, str]) -> nvcc.Plan:
        """Raises NotUnderstood."""
        key = digest.of_value([toolkit.digest, flags])
        if key not in self._plans:
            self.root.mkdir(parents=True, exist_ok=True)
            (self.root / nvcc.UNIT).touch()
            done = await self._runner.run(
                nvcc.command(toolkit.nvcc, flags), cwd=self.root, environment=environment, timeout=60.0
            )
            if done.code != 0:
                raise nvcc.NotUnderstood(done.output.strip()[-300:])
            self._plans[key] = nvcc.parse(done.output, toolkit.variables)
        return self._plans[key]

    # ------------------------------------------------------------------ making

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _build(self, profile: Profile, toolchain: Toolchain) -> None:
        async with self._one_at_a_time:
            try:
                await self._quiet()
                started = time.monotonic()
                self._make_room()
                finish = await self._finisher(toolchain) if self._finisher is not None else None
                toolkit = toolchain.cuda
                assert toolkit is not None
                of_toolkit = chain(*toolkit.include_folders)
                searched = [*folders(profile.flags), *of_toolkit, *toolchain.include_folders]
                profile.host = await self._hosts.get(
                    profile.plan, f"{toolchain.digest}{toolkit.digest}", toolchain.roots, searched,
                    profile.environment, finish, profile.extras,
                )  # fmt: skip
                await self._start_lean(profile, toolchain)
                profile.memory = await asyncio.to_thread(profile.levels["lean"].memory)
                profile.state = "ready"
                log.info("CUDA profile %s ready after %.1f s", profile.key[:12], time.monotonic() - started)
            except (OSError, RuntimeError, ValueError, ServerDied, ChangedDuringBuild) as error:
                profile.state, profile.reason, profile.failed_at = "failed", str(error)[-1000:], time.monotonic()
                self.dropped["could not be made"] += 1
                log.warning("CUDA profile %s could not be made: %s", profile.key[:12], error)
                await self._close(profile)

    async def _start_lean(self, profile: Profile, toolchain: Toolchain) -> None:
        place = await asyncio.to_thread(self._overlay, toolchain)
        library = await self._library.path("gcc", profile.environment)
        profile.levels["lean"] = await level.start(
            "lean", self._folder(profile) / "lean", profile.plan, (*overlay.PRELUDE, *profile.extras), [str(place)],
            self._runner, library, profile.environment, self._timeout,
        )  # fmt: skip

    def _overlay(self, toolchain: Toolchain) -> Path:
        """The overlay of a toolchain's torch, written if need be."""
        sources = [digest.of_file(path) for path in sorted(overlay.STUBS.rglob("*.h"))]
        sources.append(digest.of_file(Path(overlay.__file__)))
        place = self.root / "overlays" / digest.of_value([toolchain.digest, sources])
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            draft = place.with_suffix(f".{os.getpid()}")
            shutil.rmtree(draft, ignore_errors=True)
            overlay.write(toolchain.torch_dir, draft)
            draft.rename(place)
        return place

    async def built(self) -> None:
        """Wait until nothing is being made."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    def _make_room(self) -> None:
        """Close the least recently used until another profile of the largest size seen fits under both limits."""
        ready = sorted((p for p in self.by_key.values() if p.state == "ready"), key=lambda p: p.used)
        room = max((p.memory for p in ready), default=0)
        while ready and (len(ready) >= MOST or sum(p.memory for p in ready) + room > self._memory):
            self.drop(ready.pop(0), "evicted")

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(self._close(profile) for profile in self.by_key.values()))

    def report(self) -> list[dict[str, Any]]:
        """One row per profile, for ``warmcc status`` and ``warmcc profiles``."""
        return [
            {
                "id": p.key[:12],
                "state": p.state,
                "memory": p.memory,
                "reason": p.reason,
                "flags": p.flags,
                "headers": list(p.extras),
                "servers": {
                    s.name: {"alive": s.alive, "served": s.served} for f in p.levels.values() for s in f.servers
                },
            }
            for p in self.by_key.values()
        ]


def why_not(request: Request, plan: Plan) -> str | None:
    """Why units of a request go to nvcc itself whatever is warm, or None."""
    words = split(f"{plan.cuda_cflags} {plan.cuda_post_cflags}")
    if keys.workdir(request) is not None:
        return "a flag may name a relative path"
    if debug := _DEBUG.intersection(words):
        return f"{debug.pop()} describes the source to a debugger"
    if variable := _HEADER_VARIABLES.intersection(request.environment):
        return f"{variable.pop()} is set"
    users = [*folders(split(" ".join(request.extra_cuda_cflags))), *request.extra_include_paths]
    if sharing.any_matters(users, _OURS):
        return "a folder of headers may stand in front of torch's"
    return None


def why_not_lean(text: str) -> str | None:
    """Why a unit may mean something else behind a reduced prelude: it asks for macros, which headers may define.

    >>> why_not_lean("#if __CUDA_ARCH__ >= 800")
    >>> why_not_lean("#ifdef TORCH_API")
    'a condition on TORCH_API may depend on headers'
    """
    if match := _SEES_HEADERS.search(text):
        return f"{match.group().strip()} may depend on headers"
    if (match := _OF_CUDA.search(text)) and not _INCLUDES_CUDA.search(text):
        return f"{match.group()} without its header"  # the prelude has it, and stock's has not
    own = set(re.findall(r"#[ \t]*define[ \t]+(\w+)", text)) | _SAFE
    for condition in _CONDITION.findall(text):
        for name in re.findall(r"[A-Za-z_]\w*", condition):
            if name not in own and not name.startswith("__"):
                return f"a condition on {name} may depend on headers"
    return None


def environment_of(request: Request, toolkit: Cuda) -> dict[str, str]:
    """What nvcc gives the programs that it runs."""
    found = keys.build_environment(request)
    found.pop("TMPDIR", None)
    places = [os.path.join(toolkit.top, "nvvm/bin"), os.path.join(toolkit.top, "bin"), found["PATH"]]
    return {**found, "PATH": os.pathsep.join(places)}

"""The warm state for CUDA units: which sets of flags have it, and its life.

A profile is what one set of flags needs: nvcc's plan for them, the host's prelude, and levels of fork servers. Profiles
are made in the background, one at a time, when the machine is quiet; the least recently used is closed when there are
too many, or when they hold too much memory.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import chain
from pathlib import Path
from typing import Any

from warmcc import digest, paths
from warmcc.daemon import keys
from warmcc.daemon.closure import ChangedDuringBuild, Closures
from warmcc.daemon.cuda import eligible, host, level, nvcc, overlay
from warmcc.daemon.cuda.level import Level
from warmcc.daemon.cuda.profile import Profile, Refusal, environment_of
from warmcc.daemon.cuda.servers import SOCKETS, Library, ServerDied
from warmcc.daemon.process import Runner
from warmcc.daemon.profiles.lean import Missing
from warmcc.daemon.profiles.pch import Finish
from warmcc.daemon.toolchain import Toolchain
from warmcc.daemon.toolchain.cuda import Cuda
from warmcc.daemon.toolchain.flags import folders, split
from warmcc.daemon.trust import Trust
from warmcc.daemon.zygote.plan import Plan
from warmcc.request import Request

log = logging.getLogger(__name__)

MOST = 6  # profiles with fork servers at a time
RETRY_SECONDS = 600.0
IDLE_SECONDS = 600.0
WARM_BYTES = 2_900_000_000  # what a level with torch's own headers holds
_NAME = "TORCH_EXTENSION_NAME"
_NOT_YET = "not warm yet"

Finisher = Callable[[Toolchain], Awaitable[Finish | None]]


class CudaProfiles:
    """All of a daemon. Methods are called on the event loop."""

    def __init__(
        self, root: Path, closures: Closures, runner: Runner, *, quiet: Callable[[], Awaitable[None]],
        finisher: Finisher | None, timeout: float, memory: int, fork_memory: int, trust: Trust,
    ) -> None:  # fmt: skip
        self.root = root
        self._closures = closures
        self._runner = runner
        self._quiet = quiet
        self._finisher = finisher
        self._timeout = timeout
        self._memory = memory
        self._limits = {"WARMCC_CPU": str(int(timeout) + 1), "WARMCC_MEMORY": str(fork_memory)}
        self._trust = trust
        self.missing = Missing(root / "lean.json")
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
        if (reason := eligible.why_not(request, plan, text)) is not None:
            return reason
        toolkit = toolchain.cuda
        assert toolkit is not None
        flags = [word for word in split(f"{plan.cuda_cflags} {plan.cuda_post_cflags}") if f"-D{_NAME}=" not in word]
        environment = environment_of(request, toolkit)
        try:
            steps = await self._plan(toolkit, flags, environment)
        except nvcc.NotUnderstood as error:
            return f"nvcc's plan: {error}"
        torch, extras = eligible.has_torch(text), eligible.extras(text)
        headers = (*host.HEADERS, *extras) if torch else eligible.toolkits(text)
        variables = keys.compile_environment(request, nvcc=True)
        key = digest.of_value([toolchain.digest, toolkit.digest, flags, headers, variables])
        profile = self.by_key.get(key)
        if profile is not None and profile.state == "ready" and not self._holds(profile):
            profile = None
        if profile is None or (profile.state == "failed" and time.monotonic() - profile.failed_at > RETRY_SECONDS):
            profile = Profile(key, toolchain, flags, torch, headers, extras, steps, environment)
            self.by_key[key] = profile
            self._spawn(self._build(profile))
        if profile.state != "ready":
            return _NOT_YET if profile.state == "building" else f"could not be made warm: {profile.reason}"
        profile.used = time.monotonic()
        return profile

    def levels(self, profile: Profile, text: str) -> tuple[list[Level], str | None]:
        """The levels that may compile a unit, the fastest first; and why the lean one may not."""
        found = []
        reason = None
        if profile.torch:
            reason = self._why_not_lean(profile, text)
            if reason is None and profile.lean is not None:
                found.append(profile.lean)
        if (headers := self._block(profile, text)) in profile.warm:
            found.append(profile.warm[headers])
        return found, reason

    def _why_not_lean(self, profile: Profile, text: str) -> str | None:
        if profile.lean is None:
            return "what the lean prelude made was wrong"
        if (name := self.missing.mentioned_in(text)) is not None:
            return f"{name} was not found behind the lean prelude"
        return eligible.why_not_lean(text)

    @staticmethod
    def _block(profile: Profile, text: str) -> tuple[str, ...] | None:
        if not profile.torch:
            return profile.headers
        assert profile.host is not None
        return eligible.block(text, profile.host.read)

    def want_warm(self, profile: Profile, text: str) -> None:
        """Start the warm level for units that begin as this one does, in the background."""
        headers = self._block(profile, text)
        if headers is None or headers in profile.warm:
            return
        refused = profile.refused.get(headers)
        if refused is None or time.monotonic() - refused.at > RETRY_SECONDS:
            profile.refused[headers] = Refusal(_NOT_YET)
            profile.growing[headers] = self._spawn(self._add_warm(profile, headers))

    def _holds(self, profile: Profile) -> bool:
        """Whether its servers live, are trusted, and have read what the headers still say."""
        assert profile.host is not None
        if not all(found.alive for found in profile.levels):
            cause = "a fork server died"
        elif not all(found.maker in self._trust for found in profile.levels):
            cause = "made something else than nvcc"
        elif not self._closures.holds(profile.host.closure):
            cause = "a header changed"
        else:
            return True
        self.drop(profile, cause)
        return False

    def drop(self, profile: Profile, cause: str) -> None:
        """Close a profile's servers; the next request makes it anew."""
        if self.by_key.get(profile.key) is not profile:
            return  # another unit noticed it first
        log.warning("CUDA profile %s dropped: %s", profile.key[:12], cause)
        self.dropped[cause] += 1
        del self.by_key[profile.key]
        for task in profile.growing.values():
            task.cancel()
        self._spawn(self._close(profile))

    async def _close_dropped(self, profile: Profile) -> None:
        """Close what was added to a profile that was dropped meanwhile, with the levels that it had."""
        if self.by_key.get(profile.key) is not profile:
            await self._close(profile)

    @staticmethod
    async def _close_level(found: Level) -> None:
        await found.close()
        await asyncio.to_thread(shutil.rmtree, found.folder, True)

    async def _close(self, profile: Profile) -> None:
        for found in profile.levels:
            await self._close_level(found)
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

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _build(self, profile: Profile) -> None:
        async with self._one_at_a_time:
            try:
                await self._quiet()
                started = time.monotonic()
                self._make_room()
                await self._start_host(profile)
                if profile.torch:
                    await self._start_lean(profile)
                else:
                    await self._start_warm(profile, profile.headers)
                profile.state = "ready"
                await self._close_dropped(profile)
                log.info("CUDA profile %s ready after %.1f s", profile.key[:12], time.monotonic() - started)
            except (OSError, RuntimeError, ValueError, ServerDied, ChangedDuringBuild) as error:
                profile.state, profile.reason, profile.failed_at = "failed", str(error)[-1000:], time.monotonic()
                self.dropped["could not be made"] += 1
                log.warning("CUDA profile %s could not be made: %s", profile.key[:12], error)
                await self._close(profile)

    async def _start_host(self, profile: Profile) -> None:
        toolchain, toolkit = profile.toolchain, profile.toolchain.cuda
        assert toolkit is not None
        finish = await self._finisher(toolchain) if self._finisher is not None else None
        of_toolkit = chain(*toolkit.include_folders)
        searched = [*folders(profile.flags), *of_toolkit, *toolchain.include_folders]
        headers, extras = (host.HEADERS, profile.extras) if profile.torch else ((), profile.headers)
        profile.host = await self._hosts.get(
            profile.plan, f"{toolchain.digest}{toolkit.digest}", toolchain.roots, searched, profile.environment, finish,
            headers, extras,
        )  # fmt: skip

    async def _start_lean(self, profile: Profile) -> None:
        place = await asyncio.to_thread(self._overlay, profile.toolchain)
        maker = self._maker("lean", profile, place.name)
        if maker in self._trust:
            profile.lean = await self._start("lean", maker, profile, (*overlay.PRELUDE, *profile.extras), [str(place)])

    async def _start_warm(self, profile: Profile, headers: tuple[str, ...]) -> None:
        maker = self._maker("warm", profile, *headers)
        if maker not in self._trust:
            raise RuntimeError("what it made differed from nvcc's")
        profile.warm[headers] = await self._start("warm", maker, profile, headers, [])

    async def _add_warm(self, profile: Profile, headers: tuple[str, ...]) -> None:
        async with self._one_at_a_time:
            if self.by_key.get(profile.key) is not profile:
                return  # dropped meanwhile
            try:
                await self._quiet()
                started = time.monotonic()
                self._make_room(profile)
                await self._start_warm(profile, headers)
                del profile.refused[headers]
                await self._close_dropped(profile)
                log.info("CUDA profile %s has a warm level after %.1f s", profile.key[:12], time.monotonic() - started)
            except (OSError, RuntimeError, ServerDied) as error:
                profile.refused[headers] = Refusal(str(error)[-1000:])
                self.dropped["a warm level could not be made"] += 1
                log.warning("CUDA profile %s gets no warm level: %s", profile.key[:12], error)

    @staticmethod
    def _maker(name: str, profile: Profile, *parts: str) -> str:
        toolkit = profile.toolchain.cuda
        assert toolkit is not None
        return f"CUDA {name} {digest.of_value([profile.toolchain.digest, toolkit.digest, *parts])[:16]}"

    async def _start(
        self, name: str, maker: str, profile: Profile, headers: tuple[str, ...], front: list[str]
    ) -> Level:
        library = await self._library.path("gcc", profile.environment)
        folder = self._folder(profile) / f"{name}-{secrets.token_hex(4)}"
        made = await level.start(
            name,
            maker,
            folder,
            profile.plan,
            headers,
            front,
            self._runner,
            library,
            {**profile.environment, **self._limits},
        )
        for server in made.servers:
            server.on_death(lambda: self.drop(profile, "a fork server died"))
        made.memory = await asyncio.to_thread(level.held, made)
        profile.memory += made.memory
        return made

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

    def _make_room(self, grows: Profile | None = None) -> None:
        """Close the least recently used until one more level fits under both limits: first warm levels, of which lean
        ones are the better part, then profiles; for one that ``grows`` only those that nobody uses at the time. Raises
        RuntimeError when it cannot fit."""
        ready = sorted((p for p in self.by_key.values() if p.state == "ready"), key=lambda p: p.used)
        sizes = [p.lean.memory for p in ready if p.lean is not None]
        room = max(sizes, default=0) if grows is None else WARM_BYTES
        now = time.monotonic()
        # One without torch is made anew in a second.
        idle = [p for p in ready if p is not grows and (not p.torch or now - p.used > IDLE_SECONDS)]
        others = list(ready) if grows is None else idle

        def fits() -> bool:
            return sum(p.memory for p in ready) + room <= self._memory

        for profile in ready:
            if profile.torch and profile.warm and not fits():
                self._close_warm(profile)
        while others and not (fits() and len(ready) < MOST):
            ready.remove(others[0])
            self.drop(others.pop(0), "evicted")
        if grows is not None and not fits():
            raise RuntimeError(f"it does not fit into cuda_memory ({self._memory >> 20} MiB)")

    def _close_warm(self, profile: Profile) -> None:
        self.dropped["a warm level was evicted"] += 1
        for found in profile.warm.values():
            profile.memory -= found.memory
            self._spawn(self._close_level(found))
        profile.warm.clear()

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(self._close(profile) for profile in self.by_key.values()))

    def report(self) -> list[dict[str, Any]]:
        """One row per profile, for ``warmcc status`` and ``warmcc profiles``."""
        return [profile.report() for profile in self.by_key.values()]

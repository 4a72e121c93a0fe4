"""What a profile is made of: nvcc's plan for its flags, the host's prelude, and the levels of fork
servers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import tempfile
from collections.abc import Awaitable, Callable
from itertools import chain
from pathlib import Path

from warmcc import digest
from warmcc.daemon.closure.closure import Closures
from warmcc.daemon.cuda import dryrun
from warmcc.daemon.cuda.overlay.kept import Overlays
from warmcc.daemon.cuda.warm import host_pch, level
from warmcc.daemon.cuda.warm.fork_servers import ServerLibrary
from warmcc.daemon.cuda.warm.level import Level
from warmcc.daemon.cuda.warm.profile import CudaProfile
from warmcc.daemon.pch.pch import Finish
from warmcc.daemon.store.trust import Trust
from warmcc.daemon.system import bounds
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain import Toolchain, lookups
from warmcc.daemon.toolchain.cuda import Cuda

_PLANS = 200  # sets of flags whose plans are remembered
Finisher = Callable[[Toolchain], Awaitable[Finish | None]]


class Starter:
    """Starts what profiles need. ``limits`` is the environment that bounds the fork servers'
    children; ``fronts`` gives the folders that stand in front of torch's in the levels that run,
    ``hosts`` those of the host's preludes that are in use."""

    def __init__(
        self, root: Path, closures: Closures, runner: Runner, *, finisher: Finisher | None,
        timeout: float, limits: dict[str, str], trust: Trust,
        on_death: Callable[[CudaProfile], None], fronts: Callable[[], set[str]],
        hosts: Callable[[], set[Path]],
    ) -> None:  # fmt: skip
        self.root = root
        self._runner = runner
        self._finisher = finisher
        self._limits = limits
        self._trust = trust
        self._on_death = on_death
        self.overlays = Overlays(root / "overlays", fronts)
        self._library = ServerLibrary(root, runner)
        self._hosts = host_pch.Hosts(root / "host", closures, runner, timeout=timeout, in_use=hosts)
        self._plans: dict[str, dryrun.NvccPlan] = {}

    async def plan(
        self, toolkit: Cuda, flags: list[str], environment: dict[str, str]
    ) -> dryrun.NvccPlan:
        """Raises UnknownPlan."""
        key = digest.of_value([toolkit.digest, flags])
        if key not in self._plans:
            with tempfile.TemporaryDirectory(prefix="warmcc-nvcc-") as scratch:
                folder = Path(scratch)
                (folder / dryrun.UNIT).touch()
                environment = {
                    **environment,
                    "TMPDIR": scratch,
                }  # it makes files there, also where it runs nothing
                words = dryrun.command(toolkit.nvcc, flags)
                done = await self._runner.run(
                    words, cwd=folder, environment=environment, timeout=60.0
                )
            if done.code != 0:
                raise dryrun.UnknownPlan(done.output.strip()[-300:])
            bounds.forget_oldest(self._plans, _PLANS)
            # cudafe++ and cicc are told where the unit is: what is kept is known by its words to
            # the next daemon, too.
            told = done.output.replace(str(folder / dryrun.UNIT), dryrun.UNIT)
            self._plans[key] = dryrun.parse(told, toolkit.variables)
        return self._plans[key]

    async def host(self, profile: CudaProfile, *, kept: bool = False) -> None:
        """Give a profile its host's prelude, or only one that is ``kept``: one that serves callers
        with other folders of headers, unless its own headers could be found in one of these. Raises
        what ``Hosts.get`` does."""
        names = self._hosts.names or await asyncio.to_thread(_files, self._own(profile))
        for _ in range(2):  # the first time with a guess at its names
            profile.ignored = [one for one in profile.folders if not host_pch.hides(one, names)]
            profile.host = await self._host(profile, profile.ignored, kept=kept)
            if profile.host is None or not profile.host.is_hidden_by(profile.ignored):
                break
            names = profile.host.names

    async def _host(
        self, profile: CudaProfile, without: list[str], *, kept: bool
    ) -> host_pch.HostPrelude | None:
        """The host's prelude of a profile ``without`` some folders."""
        toolchain, toolkit = profile.toolchain, profile.toolchain.cuda
        assert toolkit is not None
        finish = await self._finisher(toolchain) if self._finisher is not None else None
        own = self._own(profile)
        plan = profile.plan.for_headers(without)
        searched = lookups.header_search(list(plan.preprocess.options), own, profile.environment)
        headers, extras = (
            (host_pch.HEADERS, profile.extras) if profile.torch else ((), profile.headers)
        )
        recipe = host_pch.Recipe(
            plan, f"{toolchain.digest}{toolkit.digest}", toolchain.roots, searched,
            profile.environment, finish, headers, extras,
        )  # fmt: skip
        return await self._hosts.get(recipe, profile.haste, kept=kept)

    @staticmethod
    def _own(profile: CudaProfile) -> list[str]:
        """The compilers' folders of headers."""
        toolchain, toolkit = profile.toolchain, profile.toolchain.cuda
        assert toolkit is not None
        return [*chain(*toolkit.include_folders), *toolchain.include_folders]

    async def lean(self, profile: CudaProfile) -> None:
        """Give a profile its lean level, if what that made was never wrong. It does not give way to
        builds: it takes seconds, and one of these may wait for it. Raises ServerDied, OSError."""
        place = await self.overlays.get(profile.toolchain)
        maker = self._maker("lean", profile, place.name)
        if maker in self._trust:
            headers = (*Overlays.HEADERS, *profile.extras)
            front = [str(place)]
            profile.lean = await self._start(
                "lean", maker, profile, headers, front, gives_way=False
            )

    async def warm(self, profile: CudaProfile, headers: tuple[str, ...]) -> None:
        """Give a profile a warm level for units that begin with these. Raises ServerDied, OSError,
        RuntimeError.
        """
        maker = self._maker("warm", profile, *headers)
        if maker not in self._trust:
            raise RuntimeError("what it made differed from nvcc's")
        name = (
            "warm" if headers or not profile.torch else "bare"
        )  # of a unit that begins with a header of its own
        profile.warm[headers] = await self._start(name, maker, profile, headers, [])

    def folder(self, profile: CudaProfile) -> Path:
        return self.root / "servers" / f"{profile.key[:16]}-{id(profile):x}"

    @staticmethod
    def _maker(name: str, profile: CudaProfile, *parts: str) -> str:
        toolkit = profile.toolchain.cuda
        assert toolkit is not None
        made_of = [profile.toolchain.digest, toolkit.digest, *parts]
        return f"CUDA {name} {digest.of_value(made_of)[:16]}"

    async def _start(
        self, name: str, maker: str, profile: CudaProfile, headers: tuple[str, ...],
        front: list[str], *,
        gives_way: bool = True,
    ) -> Level:  # fmt: skip
        # The daemon's own compiler: what is preloaded is no caller's to choose.
        library = await self._library.path("gcc", {"PATH": os.environ.get("PATH", os.defpath)})
        bounds.mark_used(library)
        await asyncio.to_thread(bounds.prune, self.root, "*.so", [library])
        folder = self.folder(profile) / f"{name}-{secrets.token_hex(4)}"
        environment = {**profile.environment, **self._limits}
        made = await level.start(
            name,
            maker,
            folder,
            profile.plan,
            headers,
            front,
            self._runner,
            library,
            environment,
            gives_way=gives_way,
        )  # nothing may wait from here on: who is cancelled now would leave its servers
        for server in made.servers:
            server.on_death(lambda: self._on_death(profile))
        profile.memory += made.memory
        return made


def _files(folders: list[str]) -> frozenset[str]:
    """The files in folders, by their names."""
    found: set[str] = set()
    for folder in folders:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            found.update(entry.name for entry in entries if entry.is_file() and "." in entry.name)
    return frozenset(found)

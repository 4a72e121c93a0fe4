"""What a profile is made of, but for its host's prelude: nvcc's plan for its flags, and the levels
of fork servers.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from warmcc import digest
from warmcc.daemon.cuda import dryrun
from warmcc.daemon.cuda.overlay.kept import Overlays
from warmcc.daemon.cuda.unit_text.eligibility import EXTENSION
from warmcc.daemon.cuda.warm import level
from warmcc.daemon.cuda.warm.fork_servers import ServerLibrary
from warmcc.daemon.cuda.warm.level import Level
from warmcc.daemon.cuda.warm.pool import Pool
from warmcc.daemon.cuda.warm.profile import CudaProfile
from warmcc.daemon.store.trust import Trust
from warmcc.daemon.system import bounds
from warmcc.daemon.system.background import Haste
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain.cuda import Cuda

_PLANS = 200  # sets of flags whose plans are remembered


class Starter:
    """Starts what profiles need but the host's prelude. A fork has so many bytes of memory, and may
    use a processor for so many seconds. ``profiles`` gives all that there are, and ``on_death``
    hears of one of which a server died; both are set by whoever keeps them."""

    def __init__(
        self, root: Path, runner: Runner, fork_memory: int, seconds: float, trust: Trust
    ) -> None:
        self.root = root
        self._runner = runner
        self._limits = {"WARMCC_CPU": str(int(seconds) + 1), "WARMCC_MEMORY": str(fork_memory)}
        self._trust = trust
        self.profiles: Callable[[], Iterable[CudaProfile]] = tuple
        self.on_death: Callable[[CudaProfile], None] = lambda _: None
        self.overlays = Overlays(root / "overlays", self._fronts)
        self.pool = Pool()
        self._library = ServerLibrary(root, runner)
        self._plans: dict[str, dryrun.NvccPlan] = {}
        self._planning: dict[str, asyncio.Task[dryrun.NvccPlan]] = {}

    def _fronts(self) -> set[str]:
        """The folders that stand in front of torch's in the levels that run."""
        return {front for one in self.profiles() for found in one.levels for front in found.front}

    async def plan(
        self, toolkit: Cuda, flags: list[str], environment: dict[str, str]
    ) -> dryrun.NvccPlan:
        """Raises UnknownPlan."""
        key = digest.of_value([toolkit.digest, flags])
        if key not in self._plans:
            making = self._planning.get(key)  # the units of a package ask together
            if making is None:
                making = asyncio.create_task(self._planned(toolkit, flags, environment))
                self._planning[key] = making
                making.add_done_callback(lambda _: self._planning.pop(key))
            await asyncio.wait([making])  # not await: who is cancelled would cancel it
            bounds.forget_oldest(self._plans, _PLANS)
            self._plans[key] = making.result()
        return self._plans[key]

    async def _planned(
        self, toolkit: Cuda, flags: list[str], environment: dict[str, str]
    ) -> dryrun.NvccPlan:
        with tempfile.TemporaryDirectory(prefix="warmcc-nvcc-") as scratch:
            folder = Path(scratch)
            (folder / dryrun.UNIT).touch()
            # It makes files there, also where it runs nothing.
            environment = {**environment, "TMPDIR": scratch}
            done = await self._runner.run(
                dryrun.command(toolkit.nvcc, flags), cwd=folder, environment=environment,
                timeout=60.0,
            )  # fmt: skip
        if done.code != 0:
            raise dryrun.UnknownPlan(done.output.strip()[-300:])
        # cudafe++ and cicc are told where the unit is: what is kept is known by its words to the
        # next daemon, too.
        told = done.output.replace(str(folder / dryrun.UNIT), dryrun.UNIT)
        return dryrun.parse(told, toolkit.variables)

    async def lean(self, profile: CudaProfile) -> None:
        """Give a profile its lean level, if what that made was never wrong. It does not give way to
        builds: it takes seconds, and one of these may wait for it. Raises ServerDied, OSError."""
        recipe = await self._lean_recipe(profile)
        if recipe.maker in self._trust:
            profile.lean = await self._start(profile, recipe, Haste(wanted=True))

    async def warm(self, profile: CudaProfile, headers: tuple[str, ...], haste: Haste) -> None:
        """Give a profile a warm level for units that begin with these. Raises ServerDied, OSError,
        RuntimeError.
        """
        recipe = await self._warm_recipe(profile, headers)
        if recipe.maker not in self._trust:
            raise RuntimeError("what it made differed from nvcc's")
        made = await self._start(profile, recipe, haste)
        try:
            await level.empty_unit(made, profile.plan)
        except BaseException:
            await made.close()
            raise
        profile.warm[headers] = made

    @staticmethod
    async def check(profile: CudaProfile) -> None:
        """See that front ends of a profile can compile behind its preludes: units use the lean
        one before that is known. Raises ServerDied, OSError."""
        for found in profile.levels:
            if found.alive:
                await level.empty_unit(found, profile.plan)

    async def missing(self, profile: CudaProfile, headers: tuple[str, ...] | None = None) -> float:
        """The share of front ends that no other profile seems to have: of the level behind these
        headers, or of the lean one. Raises as ``lean`` and ``warm``."""
        if headers is None:
            return (await self._lean_recipe(profile)).missing
        return (await self._warm_recipe(profile, headers)).missing

    async def _lean_recipe(self, profile: CudaProfile) -> level.Recipe:
        place = await self.overlays.get(profile.toolchain)
        maker = self._maker("lean", profile, place.name)
        headers = (*Overlays.HEADERS, *profile.extras)
        return await self._recipe("lean", maker, profile, headers, [str(place)])

    async def _warm_recipe(self, profile: CudaProfile, headers: tuple[str, ...]) -> level.Recipe:
        lender = profile.lean if headers == EXTENSION else None
        if headers == EXTENSION and lender is None:
            raise RuntimeError("the devices' front ends would be the lean level's")
        lent = [] if lender is None else [lender.maker]
        maker = self._maker("warm", profile, *headers, *lent)
        # of a unit that begins with a header of its own
        name = "warm" if headers or not profile.torch else "bare"
        return await self._recipe(name, maker, profile, headers, [], lender)

    @staticmethod
    def _maker(name: str, profile: CudaProfile, *parts: str) -> str:
        toolkit = profile.toolchain.cuda
        assert toolkit is not None
        made_of = [profile.toolchain.digest, toolkit.digest, *parts]
        return f"CUDA {name} {digest.of_value(made_of)[:16]}"

    async def _recipe(
        self, name: str, maker: str, profile: CudaProfile, headers: tuple[str, ...],
        front: list[str], lender: Level | None = None,
    ) -> level.Recipe:  # fmt: skip
        # The daemon's own compiler: what is preloaded is no caller's to choose.
        library = await self._library.path("gcc", {"PATH": os.environ.get("PATH", os.defpath)})
        bounds.mark_used(library)
        await asyncio.to_thread(bounds.prune, self.root, "*.so", [library])
        return level.Recipe(
            name, maker, headers, front, profile.plan, profile.programs,
            {**profile.environment, **self._limits}, library, self._runner,
            self.root / "servers", self.pool, lender,
        )  # fmt: skip

    async def _start(self, profile: CudaProfile, recipe: level.Recipe, haste: Haste) -> Level:
        made = await level.start(recipe, haste)
        # Nothing may wait from here on: who is cancelled now would leave its servers.
        for server in made.servers:
            server.on_death(lambda: self.on_death(profile))
        return made

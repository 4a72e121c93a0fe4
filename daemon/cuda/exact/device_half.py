"""The devices' half of a unit behind the lean prelude, where nothing is warm for the host's half.

What takes long to make warm with flags never seen before is the host's prelude. The lean prelude's
fork servers are there within seconds, and ``cicc`` needs nothing else. So the PTX comes from there,
while nvcc's own steps compile the host's half (``side_by_side.py``). It is the PTX that ``cicc``
makes of the unit's whole text, under the same module's name.
"""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass
from pathlib import Path

from warmcc.daemon.build.work import Work
from warmcc.daemon.cuda.exact.nvcc_steps import STUB, included, outputs_by_option
from warmcc.daemon.cuda.front_ends import CICC, Fell, FrontEnds
from warmcc.daemon.cuda.keeping import Compiled
from warmcc.daemon.cuda.tools import Tools
from warmcc.daemon.cuda.unit_text import macros, mentions
from warmcc.daemon.cuda.unit_text.own_text import OwnText
from warmcc.daemon.cuda.warm.fork_servers import ServerDied
from warmcc.daemon.plan.ways import Unit

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ptx:
    """The PTX of a unit: where it is, and what made it."""

    compiled: Compiled
    fronts: FrontEnds


class DeviceHalf:
    """That of one unit with its ``own`` text."""

    def __init__(self, work: Work, unit: Unit, own: OwnText, tools: Tools) -> None:
        self._work = work
        self._unit = unit
        self.own = own
        self._tools = tools
        self._reasons = tools.counters.cuda_reasons
        self._made: Ptx | None = None
        self._folder = work.tree / f"{unit.object}.devices"
        self.stands = False  # whether the PTX is from here
        self.refused: Fell | None = None  # what nvcc will say of a unit with a mistake
        self.behind: set[str] = set()  # macros that stand in front of headers which mention them

    async def make(self, module_id: str) -> bool:
        """Make the PTX, for a module of this name, as soon as there are fork servers; False where
        nvcc's own steps have to."""
        work, text = self._work, self.own.text
        if self.own.why_partial:
            return False
        try:
            profile = await self._tools.finder.devices_alone(
                work.request, work.toolchain, work.plan, text
            )
            if profile is None or profile.lean is None:
                return False
            level = profile.lean
            fronts = FrontEnds(
                work,
                self._unit,
                text,
                profile,
                level,
                self._tools.runner,
                self._tools.steps,
                module_id,
            )
            with profile.in_use():
                own = await self._tools.finder.own_names(
                    work.toolchain, text, macros.defined(fronts.definitions)
                )
                self.behind = own.early | own.behind
                output = await self._devices(fronts)
        except (Fell, ServerDied, OSError) as error:
            self._reasons[f"devices' half: {error}"] += 1
            said = getattr(error, "output", "")[:2000]
            log.info("%s: the devices' half is nvcc's: %s\n%s", self._unit.source, error, said)
            return False
        compiled = Compiled(profile, level, self._folder, fronts.new, output)
        self._made = Ptx(compiled, fronts)
        self.stands = not self.behind
        return True

    async def _devices(self, fronts: FrontEnds) -> str:
        """What cicc prints. Raises as ``FrontEnds.devices``."""
        try:
            return await fronts.devices(self._folder)
        except Fell as fell:
            if fell.step == CICC and not self.behind:  # with which headers may declare more
                self.refused = await self._certain(fronts, fell)
            raise

    async def _certain(self, fronts: FrontEnds, fell: Fell) -> Fell | None:
        """What nvcc would say of a unit that cicc refused, where that is certain. cudafe++ behind
        the same prelude has the first word, as nvcc runs it first. Raises ServerDied, OSError."""
        try:
            await fronts.host(self._folder)
        except Fell as first:
            fell = first
        return fell if fell.final else None

    @property
    def made(self) -> Ptx:
        assert self._made is not None
        return self._made

    async def may_stand(self, host_read: list[str]) -> bool:
        """Whether the PTX is nvcc's: no header that was read has a macro that is defined behind the
        prelude. ``host_read`` are the files of the host's half."""
        own = self.read()
        try:
            files = {path for path in host_read if path not in own}
            files |= await asyncio.to_thread(mentions.of_level, self.made.compiled.level)
            found = await asyncio.to_thread(mentions.mentioned, self.behind, files, whole=True)
        except OSError:
            return False
        if found:
            self._reasons["devices' half: a macro that headers mention"] += 1
        self.stands = not found
        return self.stands

    def give_up(self) -> None:
        """What was made of the PTX did not compile, so that nvcc's own steps have the last word."""
        self.stands = False
        self._reasons["devices' half: the host's code did not compile with it"] += 1

    def put(self, place: int, words: list[str]) -> None:
        """Put what cicc wrote for one device, by its place among them, where nvcc's own step of
        these ``words`` would have. Raises OSError."""
        device = self.made.compiled.profile.plan.devices[place]
        theirs = outputs_by_option(words)
        for option, name in outputs_by_option(device.cicc.words).items():
            made = self._folder / device.architecture / name
            if made.exists():
                text = made.read_bytes()
                if option == STUB:
                    ours, named = (included(step) for step in (device.cicc.words, words))
                    text = text.replace(f'"{ours}"'.encode(), f'"{named}"'.encode())
                Path(theirs[option]).write_bytes(text)

    def read(self) -> set[str]:
        """The unit's own files that its preprocessors read."""
        level = self.made.compiled.level
        ours = (str(self._folder), *level.front, str(level.folder.parent))
        read = self.made.fronts.read(self._folder)
        return {path for path in read if os.path.isabs(path) and not path.startswith(ours)}

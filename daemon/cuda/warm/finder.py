"""Which warm state a unit may use, by its flags and its own text; ``profiles.py`` has it made."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace

from warmcc.daemon.cuda.unit_text import eligibility, macros
from warmcc.daemon.cuda.unit_text.eligibility import EXTENSION
from warmcc.daemon.cuda.warm.level import Level
from warmcc.daemon.cuda.warm.profile import Apart, CudaProfile, Need
from warmcc.daemon.cuda.warm.profiles import CudaProfiles
from warmcc.daemon.cuda.warm.wanted import wanted_by
from warmcc.daemon.pch.lean import Missing
from warmcc.daemon.plan.stock import Plan
from warmcc.daemon.system.bounds import Reasons
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain import Toolchain
from warmcc.daemon.toolchain.header_names import HeaderNames
from warmcc.request import Request


@dataclass(frozen=True)
class OwnNames:
    """Names of a unit that a header has in it as well: macros that its conditions ask for, those
    that it defines in front of headers, and those that are defined behind the prelude."""

    asked: set[str]
    early: set[str]
    behind: set[str]


class Finder:
    """For all units of a daemon. A unit's ``text`` is its own (``unit_text/own_text.py``)."""

    def __init__(self, profiles: CudaProfiles, runner: Runner, reasons: Reasons) -> None:
        self.profiles = profiles
        self.missing = Missing(profiles.root / "lean.json")
        self._mentioned: set[str] = set()  # macros of flags that headers have in their text
        self.names = HeaderNames(profiles.root / "names", runner, reasons)
        self._background = runner.background
        self._wanting: set[asyncio.Task[None]] = set()
        self._preparing: asyncio.Task[None] | None = None

    async def find(
        self, request: Request, toolchain: Toolchain, plan: Plan, text: str, *,
        waits: Apart | None = None, units: float | None = None, ahead: bool = False,
    ) -> CudaProfile | str:  # fmt: skip
        """The profile that may compile a unit now, or why there is none; where one ``waits``, also
        one that is ready in a few seconds, or that the ``units`` of its request are worth (their
        weights' sum; one alone where that is None). ``ahead``: no unit needs it yet. Raises
        OSError."""
        weight = eligibility.weight(text)
        if not weight:  # nvcc takes less time than what would be waited for
            waits = None
        need = Need(waits, weight, weight if units is None else units, ahead)
        if waits is not None and self._preparing is None:
            self._preparing = asyncio.create_task(self.prepare(toolchain))
        return await self._find(request, toolchain, plan, text, need)

    async def _find(
        self, request: Request, toolchain: Toolchain, plan: Plan, text: str, need: Need
    ) -> CudaProfile | str:
        waits = need.waits
        async with nullcontext() if waits is None or self.names.are_known else waits():
            wanted, own = await self._wanted(request, toolchain, plan, text)
        if isinstance(wanted, str):
            return wanted
        if not wanted.torch or own.early or self._why_not_lean(text, own) is not None:
            waits = None
        found = await self.profiles.get(wanted, replace(need, waits=waits))
        if isinstance(found, str):
            return found
        early = own.early if wanted.torch else set()
        if waits is not None and found.host is None and own.behind | early:
            async with waits():
                try:
                    await found.host_text()
                except RuntimeError as error:
                    return str(error)
        mentioned = await asyncio.to_thread(macros.mentioned, own.behind | early, found)
        if mentioned & early:
            return f"{min(mentioned & early)} is defined in front of headers that mention it"
        if not mentioned:
            return found
        self._mentioned |= mentioned
        return await self._find(request, toolchain, plan, text, replace(need, waits=waits))

    async def _are_mentioned(self, toolchain: Toolchain, names: set[str]) -> set[str]:
        """Macros of flags that headers of a profile which is there mention: so will those of one
        that would have to be made, which then has them among its flags. Where none is there,
        those that any header of torch's mentions; this time only. Raises OSError."""
        known = (p for p in self.profiles.by_key.values() if p.torch and p.serves and p.host)
        served = next(known, None)
        if served is None:
            return await self.names.mentioned(toolchain, names, torch_alone=True)
        mentioned = await asyncio.to_thread(macros.mentioned, names, served)
        self._mentioned |= mentioned
        return mentioned

    async def own_names(self, toolchain: Toolchain, text: str, behind: set[str]) -> OwnNames:
        """The names of a unit that a header has as well. ``behind`` are macros of flags that are
        defined behind the prelude."""
        asked, early = eligibility.asked(text), eligibility.early(text)
        mentioned = await self.names.mentioned(toolchain, asked | early | behind)
        return OwnNames(asked & mentioned, early & mentioned, behind & mentioned)

    @property
    def is_prepared(self) -> bool:
        """Whether fork servers with torch's headers are there, or no unit need wait for the index
        of header names."""
        ready = any(one.torch and one.serves for one in self.profiles.by_key.values())
        return ready or self.names.are_known

    def want(self, request: Request, toolchain: Toolchain, plan: Plan, text: str) -> None:
        """Have the profile made that a unit needs, for the next one like it."""

        async def later() -> None:
            await self._background.quiet()
            await self.prepare(toolchain)
            with suppress(OSError):  # told by the next one
                await self.find(request, toolchain, plan, text)

        self._wanting.add(task := asyncio.create_task(later()))
        task.add_done_callback(self._wanting.discard)

    async def devices_alone(
        self, request: Request, toolchain: Toolchain, plan: Plan, text: str
    ) -> CudaProfile | None:
        """A profile that is still being made, once it has its lean level, which is there within
        seconds; None where that may not serve the unit. Raises OSError."""
        wanted, own = await self._wanted(request, toolchain, plan, text)
        if isinstance(wanted, str) or not wanted.torch:
            return None
        if self._why_not_lean(text, own) is not None:
            return None
        return await self.profiles.devices_alone(wanted)

    async def prepare(self, toolchain: Toolchain) -> None:
        """Have made what every first unit needs, which takes seconds: the index of header names,
        and the overlay. Why there is none of these is told by the profile that needs it."""

        async def overlay() -> None:
            with suppress(OSError, ValueError):
                await self.profiles.starter.overlays.get(toolchain)

        await asyncio.gather(overlay(), self.names.prepare(toolchain))

    async def make_host(
        self, request: Request, toolchain: Toolchain, plan: Plan, text: str
    ) -> None:
        """Have the host's prelude made that a unit needs, so that the first one with its flags need
        not wait for that. Raises OSError, RuntimeError, ChangedDuringBuild."""
        wanted, _ = await self._wanted(request, toolchain, plan, text)
        if isinstance(wanted, CudaProfile):
            await self.profiles.make_host(wanted)

    async def levels(self, profile: CudaProfile, text: str) -> tuple[list[Level], str | None]:
        """The levels that may compile a unit, the fastest first; and why the lean one may not."""
        found = []
        reason = sees_headers = None
        if profile.torch:
            own = await self.own_names(profile.toolchain, text, set())
            reason = self._why_not_lean(text, own)
            sees_headers = eligibility.why_not_lean(text, own.asked)
            if profile.lean is None:
                reason = "what the lean prelude made was wrong"
            elif reason is None:
                found.append(profile.lean)
        headers = _block(profile, text)
        warm = None if headers is None else profile.warm.get(headers)
        if warm is not None and (warm.lender is None or sees_headers is None):
            found.append(warm)
        return found, reason

    async def behind_extension(
        self, profile: CudaProfile, text: str, waits: Apart | None
    ) -> Level | None:  # fmt: skip
        """The level behind torch/extension.h for a unit that needs it, and ``waits`` until it is
        there; a unit that does not wait has it begun for the next one. None where that is not what
        it needs, or where there was one before."""
        if EXTENSION in profile.warm or _block(profile, text) != EXTENSION:
            return None
        own = await self.own_names(profile.toolchain, text, set())
        if eligibility.why_not_lean(text, own.asked) is not None:
            return None
        if waits is None:
            self.profiles.growing.begin(profile, EXTENSION)
            return None
        async with waits():
            return await self.profiles.growing.at_once(profile, EXTENSION)

    def want_warm(self, profile: CudaProfile, text: str) -> None:
        """Start the warm level for units that begin as this one does, in the background."""
        if (headers := _block(profile, text)) is not None:
            self.profiles.growing.want(profile, headers)

    async def _wanted(
        self, request: Request, toolchain: Toolchain, plan: Plan, text: str
    ) -> tuple[CudaProfile | str, OwnNames]:
        """The profile that a unit needs, without macros of its flags that no header mentions; or
        why it can have none. Raises OSError."""
        starter, assumed = self.profiles.starter, self._mentioned.copy()
        while True:
            wanted = await wanted_by(starter, request, toolchain, plan, text, assumed)
            left_out = set() if isinstance(wanted, str) else macros.names(wanted.left_out)
            own = await self.own_names(toolchain, text, left_out)
            if isinstance(wanted, str) or not wanted.torch or not own.behind:
                return wanted, own
            more = await self._are_mentioned(toolchain, own.behind)
            if not more:
                break
            assumed |= more
        if wanted.key not in self.profiles.by_key:
            # The first unit with these flags could not know that the headers lack some names
            assumed |= own.behind
            other = await wanted_by(starter, request, toolchain, plan, text, assumed)
            if isinstance(other, CudaProfile) and other.key in self.profiles.by_key:
                left_out = macros.names(other.left_out)
                return other, await self.own_names(toolchain, text, left_out)
        return wanted, own

    def _why_not_lean(self, text: str, own: OwnNames) -> str | None:
        """Why a unit may not be compiled behind the lean prelude, whatever is warm."""
        if (name := self.missing.mentioned_in(text)) is not None:
            return f"{name} was not found behind the lean prelude"
        return eligibility.why_not_lean(text, own.asked)


def _block(profile: CudaProfile, text: str) -> tuple[str, ...] | None:
    """The headers that a warm level for a unit has read."""
    if not profile.torch:
        return profile.headers
    return None if profile.host is None else eligibility.block(text, profile.host.read)

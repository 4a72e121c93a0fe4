"""Which warm state a unit may use, by its flags and its own text; ``profiles.py`` has it made."""

from __future__ import annotations

import asyncio

from warmcc.daemon.cuda.unit_text import eligibility, macros
from warmcc.daemon.cuda.unit_text.mentions import HeaderNames
from warmcc.daemon.cuda.warm.level import Level
from warmcc.daemon.cuda.warm.profile import CudaProfile
from warmcc.daemon.cuda.warm.profiles import CudaProfiles
from warmcc.daemon.cuda.warm.wanted import wanted_by
from warmcc.daemon.plan.stock import Plan
from warmcc.daemon.toolchain import Toolchain
from warmcc.request import Request


class Finder:
    """For all units of a daemon. A unit's ``text`` is its own (``unit_text/own_text.py``)."""

    def __init__(self, profiles: CudaProfiles) -> None:
        self.profiles = profiles
        self._mentioned: set[str] = set()  # macros of flags that headers have in their text
        self._names = HeaderNames()

    async def find(
        self, request: Request, toolchain: Toolchain, plan: Plan, text: str, *,
        waits: bool = False, many: bool = False,
    ) -> CudaProfile | str:  # fmt: skip
        """The profile that may compile a unit now, or why there is none; where one ``waits``, also
        one that is ready in a few seconds, or that it is worth waiting for as it is one of
        ``many``. Raises OSError."""
        wanted = await self._wanted(request, toolchain, plan, text)
        if isinstance(wanted, str):
            return wanted
        await self._names.look(toolchain, eligibility.asked(text))
        lean = wanted.torch and self._why_not_lean(wanted, text) is None
        found = await self.profiles.get(wanted, waits=waits and lean, many=many)
        if isinstance(found, str):
            return found
        of_flags, early = macros.names(wanted.left_out), self._early(found, text)
        mentioned = await asyncio.to_thread(macros.mentioned, of_flags | early, found)
        if mentioned & early:
            return f"{min(mentioned & early)} is defined in front of headers that mention it"
        if not mentioned:
            return found
        self._mentioned |= mentioned
        return await self.find(request, toolchain, plan, text, waits=waits, many=many)

    async def devices_alone(
        self, request: Request, toolchain: Toolchain, plan: Plan, text: str
    ) -> CudaProfile | None:
        """A profile that is still being made, once it has its lean level, which is there within
        seconds; None where that may not serve the unit. Raises OSError."""
        wanted = await self._wanted(request, toolchain, plan, text)
        if isinstance(wanted, str) or not wanted.torch:
            return None
        if self._why_not_lean(wanted, text) is not None:
            return None
        return await self.profiles.devices_alone(wanted)

    async def make_host(
        self, request: Request, toolchain: Toolchain, plan: Plan, text: str
    ) -> None:
        """Have the host's prelude made that a unit needs, so that the first one with its flags need
        not wait for that. Raises OSError, RuntimeError, ChangedDuringBuild."""
        wanted = await self._wanted(request, toolchain, plan, text)
        if isinstance(wanted, CudaProfile):
            await self.profiles.make_host(wanted)

    def levels(self, profile: CudaProfile, text: str) -> tuple[list[Level], str | None]:
        """The levels that may compile a unit, the fastest first; and why the lean one may not."""
        found = []
        reason = None
        if profile.torch:
            reason = self._why_not_lean(profile, text)
            if profile.lean is None:
                reason = "what the lean prelude made was wrong"
            elif reason is None:
                found.append(profile.lean)
        if (headers := _block(profile, text)) in profile.warm:
            found.append(profile.warm[headers])
        return found, reason

    def want_warm(self, profile: CudaProfile, text: str) -> None:
        """Start the warm level for units that begin as this one does, in the background."""
        if (headers := _block(profile, text)) is not None:
            self.profiles.want_warm(profile, headers)

    async def _wanted(
        self, request: Request, toolchain: Toolchain, plan: Plan, text: str
    ) -> CudaProfile | str:
        starter = self.profiles.starter
        return await wanted_by(starter, request, toolchain, plan, text, self._mentioned)

    def _why_not_lean(self, profile: CudaProfile, text: str) -> str | None:
        """Why a unit may not be compiled behind the lean prelude, whatever is warm."""
        if (name := self.profiles.missing.mentioned_in(text)) is not None:
            return f"{name} was not found behind the lean prelude"
        return eligibility.why_not_lean(text, self._names.unmentioned(profile.toolchain))

    @staticmethod
    def _early(profile: CudaProfile, text: str) -> set[str]:
        return eligibility.early(text) if profile.torch else set()


def _block(profile: CudaProfile, text: str) -> tuple[str, ...] | None:
    """The headers that a warm level for a unit has read."""
    if not profile.torch:
        return profile.headers
    assert profile.host is not None
    return eligibility.block(text, profile.host.read)

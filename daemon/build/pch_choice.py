"""Choose the precompiled headers of a way's units, and note which ones the compiler refuses."""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path

from warmcc.daemon.build import failures
from warmcc.daemon.build import work as working
from warmcc.daemon.build.learnt import Learnt
from warmcc.daemon.build.work import Work
from warmcc.daemon.pch import lean
from warmcc.daemon.pch.pch import Profile
from warmcc.daemon.pch.profiles import Profiles
from warmcc.daemon.plan.wanted import wanted
from warmcc.daemon.plan.ways import Unit, Way
from warmcc.daemon.store.trust import Trust
from warmcc.daemon.system.counters import Counters
from warmcc.daemon.system.runner import Finished
from warmcc.daemon.toolchain import ninja

_INVALID = re.compile(r"^.*prelude\.h.*(?:Winvalid-pch|not used because|created by).*\n?", re.M)
_MACRO = re.compile(r"not used because \W(\w+)\W is defined")


class PchChoice:
    """Chooses precompiled headers, if the configuration says so (``enabled``). One per daemon."""

    def __init__(
        self, profiles: Profiles, learnt: Learnt, counters: Counters, trust: Trust, *, enabled: bool
    ) -> None:
        self._profiles = profiles
        self._learnt = learnt
        self._counters = counters
        self._trust = trust
        self._enabled = enabled

    async def settle(self) -> None:
        """Wait for PCHs that are being read after a start."""
        await self._profiles.settle()

    def choose(self, work: Work, way: Way) -> bool:
        """Choose the PCHs of a way; False when the way is useless.
        It is when a PCH is not ready, a unit is known not to compile, or lost trust."""
        if any(self._learnt.is_broken(unit.key) for unit in way.units):
            return False
        if way.name == "lean" and lean.maker(work.toolchain.digest) not in self._trust:
            return False
        for unit in way.units:
            unit.pch = None if unit.kept is not None else self._pch(work, unit)
        return way.name == "stock" or all(
            unit.kept is not None or unit.pch is not None or (unit.generated and not unit.headers)
            for unit in way.units
            if not unit.cuda
        )

    def _pch(self, work: Work, unit: Unit) -> Path | None:
        unit.passed = None
        if not self._enabled:
            return None
        one = wanted(work.request, work.toolchain, work.plan)
        if one is not None and unit.why_none:
            self._profiles.unmatched[unit.why_none] += 1
        if one is None or not unit.headers:
            return None
        profile = self._profiles.find(one, unit.headers, exact=unit.exact, macros=unit.macros)
        if profile is None:
            return None
        unit.profile = profile
        if self._learnt.avoids(_refusal(work, profile)):
            return None
        unit.passed = unit.macros[len(profile.headers) - 1] if unit.macros else None
        return profile.header

    def note_refusals(self, work: Work, finished: Finished) -> None:
        """Note why a compiler did without a PCH that it was given, or failed with it."""
        if not (accelerated := [unit for unit in work.units if unit.pch is not None]):
            return
        if macro := _MACRO.search(finished.output):
            self._counters.pch_fallbacks[f"a header mentions {macro[1]}"] += 1
            if (one := wanted(work.request, work.toolchain, work.plan)) is not None:
                self._profiles.mentioned(one, macro[1])
        elif _INVALID.search(finished.output) or ninja.NOT_USED in finished.output:
            self._counters.pch_fallbacks["refused by the compiler"] += 1
            for unit in accelerated:
                if unit.profile is not None and (
                    finished.code == 0 or ninja.NOT_USED in finished.output
                ):
                    self._learnt.failed(_refusal(work, unit.profile))
        elif finished.code != 0 and failures.may_be_an_accelerators(finished.output):
            for unit in accelerated:
                if unit.profile is not None:
                    self._profiles.refused(unit.profile, "a compile failed with it")

    @staticmethod
    def drop_moved(work: Work) -> bool:
        """Take the PCH from units whose files have changed since it was chosen, if any."""
        moved = [
            unit
            for unit in work.units
            if unit.pch is not None and unit.passed is not None and _has_moved(work, unit)
        ]
        for unit in moved:
            unit.pch = None
        return bool(moved)


def without_warnings(output: str) -> str:
    """The compilers' text without what g++ says of PCHs that it did not use."""
    return _INVALID.sub("", output)


def _has_moved(work: Work, unit: Unit) -> bool:
    begins = working.opened(work, unit)
    return (begins.headers, begins.macros) != (unit.headers, unit.macros)


def _refusal(work: Work, profile: Profile) -> Hashable:
    """What is known of g++ and a PCH: it refuses it for some flags."""
    return profile.id, work.plan.cflags, work.plan.post_cflags

"""Choose the precompiled headers of a way's units, and note which ones the compiler refuses."""

from __future__ import annotations

import re
from collections.abc import Hashable

from warmcc.daemon.build import failures
from warmcc.daemon.build import work as working
from warmcc.daemon.build.learnt import Learnt
from warmcc.daemon.build.work import Attempt, Work
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

    def choose(self, work: Work, way: Way) -> dict[Unit, Attempt] | None:
        """The PCHs for a way; None when the way is useless.
        It is when a PCH is not ready, a unit is known not to compile, or lost trust."""
        if any(self._learnt.is_broken(work.found[unit].key) for unit in way.units):
            return None
        if way.name == "lean" and lean.maker(work.toolchain.digest) not in self._trust:
            return None
        pending = [unit for unit in way.units if not work.has(unit)]
        attempts = {unit: self._attempt(work, unit) for unit in pending}
        if way.name == "stock" or all(
            attempts[unit].pch is not None or (unit.generated and not unit.headers)
            for unit in pending
            if not unit.cuda
        ):
            return attempts
        return None

    def _attempt(self, work: Work, unit: Unit) -> Attempt:
        """The PCH that may stand for what a unit begins with."""
        if not self._enabled:
            return Attempt()
        one, opening = wanted(work.request, work.toolchain, work.plan), work.found[unit].opening
        if one is not None and opening.why:
            self._profiles.unmatched[opening.why] += 1
        if one is None or not opening.headers:
            return Attempt()
        profile = self._profiles.find(one, opening.headers, exact=unit.exact, macros=opening.macros)
        if profile is None or self._learnt.avoids(_refusal(work, profile)):
            return Attempt()
        passed = opening.macros[len(profile.headers) - 1] if opening.macros else None
        return Attempt(profile.header, profile, passed)

    def note_refusals(self, work: Work, finished: Finished) -> None:
        """Note why a compiler did without a PCH that it was given, or failed with it."""
        attempts = [work.attempt(unit) for unit in work.accelerated]
        profiles = [attempt.profile for attempt in attempts if attempt.profile is not None]
        if not profiles:
            return
        if macro := _MACRO.search(finished.output):
            self._counters.pch_fallbacks[f"a header mentions {macro[1]}"] += 1
            if (one := wanted(work.request, work.toolchain, work.plan)) is not None:
                self._profiles.mentioned(one, macro[1])
        elif _INVALID.search(finished.output) or ninja.NOT_USED in finished.output:
            self._counters.pch_fallbacks["refused by the compiler"] += 1
            if finished.code == 0 or ninja.NOT_USED in finished.output:
                for profile in profiles:
                    self._learnt.failed(_refusal(work, profile))
        elif finished.code != 0 and failures.may_be_an_accelerators(finished.output):
            for profile in profiles:
                self._profiles.refused(profile, "a compile failed with it")

    @staticmethod
    def drop_moved(work: Work) -> bool:
        """Take the PCH from units whose files have changed since it was chosen, if any."""
        moved = [
            unit
            for unit in work.accelerated
            if work.attempt(unit).passed is not None and _has_moved(work, unit)
        ]
        work.taken.attempts.update(dict.fromkeys(moved, Attempt()))
        return bool(moved)


def without_warnings(output: str) -> str:
    """The compilers' text without what g++ says of PCHs that it did not use."""
    return _INVALID.sub("", output)


def _has_moved(work: Work, unit: Unit) -> bool:
    now, before = working.opened(work, unit), work.found[unit].opening
    return (now.headers, now.macros) != (before.headers, before.macros)


def _refusal(work: Work, profile: Profile) -> Hashable:
    """What is known of g++ and a PCH: it refuses it for some flags."""
    return profile.id, work.plan.cflags, work.plan.post_cflags

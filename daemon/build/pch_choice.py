"""Choose the precompiled headers of a way's units, and note which ones the compiler refuses.

Where flags come for the first time, the user's unit alone may be compiled behind the text of the
lean headers: they are half of what stock reads. A mistake in it would then be paid for twice, so it
is parsed first, behind the PCH of similar flags, which takes a second. Many units wait for a PCH
that is made first (``pch/for_many.py``).
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import replace

from warmcc.daemon.build import failures
from warmcc.daemon.build import work as working
from warmcc.daemon.build.learnt import Learnt
from warmcc.daemon.build.work import Attempt, Text, Work
from warmcc.daemon.pch import for_many, inductor_headers, lean
from warmcc.daemon.pch.pch import Profile
from warmcc.daemon.pch.profiles import Profiles
from warmcc.daemon.plan.binding import neutral
from warmcc.daemon.plan.wanted import wanted
from warmcc.daemon.plan.ways import Unit, Way
from warmcc.daemon.store.trust import Trust
from warmcc.daemon.system.counters import Counters
from warmcc.daemon.system.runner import Finished
from warmcc.daemon.toolchain import ninja

_INVALID = re.compile(r"^.*prelude\.h.*(?:Winvalid-pch|not used because|created by).*\n?", re.M)
_PATIENCE_SECONDS = 120.0
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
        self._coming = for_many.Coming()

    async def settle(self) -> None:
        """Wait for PCHs that are being read after a start."""
        await self._profiles.settle()

    async def make_first(self, work: Work, alike: Sequence[str], steps: int | None) -> None:
        """Have PCHs made, and wait for them, which torch.compile would make in front of a unit, and
        those which pay for themselves within a build: ``alike`` are its C++ sources, of which it
        has so many compiled at a time (None: nobody waits)."""
        if self._enabled and steps is not None and (alike or work.request.call == "compile"):
            await self._make_for_many(work, alike, steps)
        for unit in work.ways.stock.units if self._enabled else ():
            headers = inductor_headers.first_of(work.found[unit].opening.headers)
            one = wanted(work.request, work.toolchain, work.plan) if headers else None
            if one is not None and not work.has(unit):
                with work.timeline.span("precompiled header"):
                    await self._profiles.make(one, headers, _PATIENCE_SECONDS)

    async def _make_for_many(self, work: Work, alike: Sequence[str], steps: int) -> None:
        pending = [unit for unit in work.ways.stock.units if not unit.cuda and not work.has(unit)]
        if len(pending) != 1 or not work.follows:
            return
        one = wanted(work.request, work.toolchain, work.plan, work.cflags(pending[0]))
        if one is None:
            return
        found = work.found[pending[0]]
        if not alike:
            for_many.hasten(self._profiles, one, found.opening, self._coming, found.key)
        else:
            await for_many.make(
                self._profiles, one, found.opening, all_sources=alike, steps=steps,
                opened=lambda source: working.opened_file(work, source),
                waiting=work.timeline.span("precompiled header"),
            )  # fmt: skip

    def choose(self, work: Work, way: Way) -> dict[Unit, Attempt] | None:
        """The PCHs for a way; None when the way is useless.
        It is when a PCH is not ready, except for the user's own unit behind a lean prelude, when a
        unit is known not to compile, or when the way lost trust."""
        if any(self._learnt.is_broken(work.found[unit].key) for unit in way.units):
            return None
        if way.name == "lean" and lean.maker(work.toolchain.digest) not in self._trust:
            return None
        pending = [unit for unit in way.units if not work.has(unit)]
        attempts = {unit: self._attempt(work, unit) for unit in pending}
        if way.name == "stock":
            return attempts
        without = [
            unit
            for unit in pending
            if not unit.cuda and attempts[unit].pch is None
            if unit.headers or not unit.generated
        ]
        if way.name == "lean" and without == way.units[:1]:
            attempts[without[0]] = self._behind_text(work, without[0])
            without = [unit for unit in without if attempts[unit].text is None]
        return None if without else attempts

    def _behind_text(self, work: Work, unit: Unit) -> Attempt:
        """A unit behind the text of its headers, which is parsed behind a PCH of similar flags."""
        cflags = neutral.flags(work.cflags(unit))
        one = wanted(work.request, work.toolchain, work.plan, cflags)
        profile = self._profiles.usable(one, unit.headers) if one is not None else None
        if profile is None or unit.text is None:
            return Attempt()
        self._counters.pch_fallbacks["not there yet: behind the text of its headers"] += 1
        return Attempt(text=Text(lean.parts(unit.text, unit.headers), profile.header, cflags))

    def _attempt(self, work: Work, unit: Unit) -> Attempt:
        """The PCH that may stand for what a unit begins with."""
        if not self._enabled:
            return Attempt()
        opening = work.found[unit].opening
        one = wanted(work.request, work.toolchain, work.plan, work.cflags(unit))
        if one is not None and opening.why:
            self._profiles.unmatched[opening.why] += 1
        if one is None or not opening.headers:
            return Attempt()
        profile = self._profiles.find(one, opening.headers, exact=unit.exact, macros=opening.macros)
        if profile is None or self._learnt.avoids(_refusal(work, unit, profile)):
            return Attempt()
        passed = opening.macros[len(profile.headers) - 1] if opening.macros else None
        if passed is not None:
            passed -= profile.harmless
        return Attempt(profile.header, profile, passed)

    async def note_refusals(self, work: Work, finished: Finished) -> bool:
        """Note why a compiler did without a PCH that it was given, or failed with it.
        Whether it will take it now, as it refused it for a macro that makes no difference."""
        # What warmcc wrote has plain flags
        units = [unit for unit in work.accelerated if not unit.generated] or work.accelerated
        used = {
            unit: profile for unit in units if (profile := work.attempt(unit).profile) is not None
        }
        if not used:
            return False
        if macro := _MACRO.search(finished.output):
            if await self._left_out(work, used, macro[1]):
                return True
            self._counters.pch_fallbacks[f"a header mentions {macro[1]}"] += 1
            if (one := wanted(work.request, work.toolchain, work.plan)) is not None:
                self._profiles.matcher.mentioned(one, macro[1])
        elif _INVALID.search(finished.output) or ninja.NOT_USED in finished.output:
            self._counters.pch_fallbacks["refused by the compiler"] += 1
            if finished.code == 0 or ninja.NOT_USED in finished.output:
                for unit, profile in used.items():
                    self._learnt.failed(_refusal(work, unit, profile))
        elif finished.code != 0 and failures.may_be_an_accelerators(finished.output):
            for profile in used.values():
                self._profiles.refused(profile, "a compile failed with it")
        return False

    async def _left_out(self, work: Work, used: dict[Unit, Profile], macro: str) -> bool:
        """Leave a unit's own macro out of what its compiler is told of, where the headers in the
        PCH have it in messages only. Whether that was done."""
        having = [unit for unit in used if macro in (work.attempt(unit).passed or ())]
        for unit in having:
            if not await self._profiles.is_same_with(used[unit], macro):
                return False
        for unit in having:
            before = work.attempt(unit)
            left = (before.passed or frozenset()) - {macro}
            work.taken.attempts[unit] = replace(before, passed=left)
        return bool(having)

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


def _refusal(work: Work, unit: Unit, profile: Profile) -> Hashable:
    """What is known of g++ and a PCH: it refuses it for some flags."""
    return profile.id, work.cflags(unit), work.plan.post_cflags

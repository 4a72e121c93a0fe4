"""A PCH that pays for itself within one build: many sources that a client has to compile begin with
the same headers, and wait for it.

The first one that finds it missing does not wait. While a processor makes the PCH, that one is
compiled as stock does. Of sources that come one by one, as ninja has a launcher compile them, no
one knows how many are to come: after some of them it is made beside the next ones, and none waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import islice

from warmcc.daemon.pch import leading_includes
from warmcc.daemon.pch.matching import Wanted
from warmcc.daemon.pch.opening import Opening
from warmcc.daemon.pch.pch import State
from warmcc.daemon.pch.profiles import Profiles
from warmcc.daemon.system import resources

_PER_STEP, _LEAST = 2, 4
_ROOM = 4 << 30  # bytes that are free, for a compiler that makes one beside others
_LOOKED_AT = 200  # sources
_PATIENCE_SECONDS = 300.0
# Sources that came one by one, before a PCH is made beside more of them: were they the last, it
# would have cost a sixth of their time
_CAME, _CAME_SECONDS, _KINDS = 8, 900.0, 100


class Coming:
    """Sources that came one by one and found no PCH, by what it would be."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, float]] = {}

    def are_many(self, kind: str, source: str, now: float) -> bool:
        """Whether another ``source`` makes them many, ``now`` in seconds.

        >>> coming = Coming()
        >>> [coming.are_many("a", str(number), 10.0 * number) for number in range(9)].index(True)
        7
        >>> coming.are_many("a", "8", 100.0), coming.are_many("a", "9", 2000.0)
        (True, False)
        """
        if len(self._seen) > _KINDS:
            self._seen.clear()
        seen = self._seen.setdefault(kind, {})
        seen[source] = now
        for one in [one for one, at in seen.items() if at < now - _CAME_SECONDS]:
            del seen[one]
        return len(seen) >= _CAME


def least(steps: int) -> int:
    """How many units have to begin alike where so many steps run at a time. The PCH takes a third
    longer than a unit, beside one, and others take a third of one behind it; on many processors
    those that wait leave some idle.

    >>> [least(steps) for steps in (1, 2, 16)]
    [4, 4, 32]
    """
    return max(_LEAST, _PER_STEP * steps)


async def make(
    profiles: Profiles, wanted: Wanted, opening: Opening, *, all_sources: Sequence[str],
    opened: Callable[[str], Opening], steps: int, waiting: AbstractContextManager[None],
) -> None:  # fmt: skip
    """Have the PCH made with which a unit begins, if enough of all sources do for so many steps at
    a time, and wait for it in a context. ``opened`` says how a source begins."""
    if len(all_sources) < least(steps):
        return
    headers = leading_includes.worth_having(opening.headers)
    if not _helps(profiles, wanted, opening, headers):
        return
    if not _is_awaited(profiles, wanted, headers):
        if not await asyncio.to_thread(_begin_so, all_sources, opened, headers, least(steps)):
            return
        if resources.available_memory() < _ROOM:
            return
        if not _is_awaited(profiles, wanted, headers):  # nor has another one come meanwhile
            profiles.hasten(wanted, headers)
            return
    with waiting:
        await profiles.make(wanted, headers, _PATIENCE_SECONDS)


def hasten(
    profiles: Profiles, wanted: Wanted, opening: Opening, coming: Coming, source: str
) -> None:
    """Have the PCH made in haste with which a source begins that came after many others."""
    headers = leading_includes.worth_having(opening.headers)
    if not _helps(profiles, wanted, opening, headers) or _is_awaited(profiles, wanted, headers):
        return
    kind, _ = profiles.matcher.identify(wanted, headers)
    if coming.are_many(kind, source, time.monotonic()) and resources.available_memory() >= _ROOM:
        profiles.hasten(wanted, headers)


def _helps(profiles: Profiles, wanted: Wanted, opening: Opening, headers: tuple[str, ...]) -> bool:
    """Whether a unit that begins so has no PCH, and may have one of these headers."""
    sizes = range(1, len(opening.headers) + 1)
    if not headers or any(profiles.usable(wanted, opening.headers[:size]) for size in sizes):
        return False
    profile = profiles.known(wanted, headers)
    if profile is not None and profile.state is not State.BUILDING:
        return False  # it failed, or is being read
    passed = opening.macros[len(headers) - 1] if opening.macros else None
    return not profiles.matcher.why_not_past(wanted, headers, passed)


def _is_awaited(profiles: Profiles, wanted: Wanted, headers: tuple[str, ...]) -> bool:
    profile = profiles.known(wanted, headers)
    return profile is not None and profile.haste.wanted


def _begin_so(
    sources: Sequence[str], opened: Callable[[str], Opening], headers: tuple[str, ...], number: int
) -> bool:
    """Whether so many sources begin with what makes a PCH of these headers."""
    openings = map(opened, islice(sources, _LOOKED_AT))
    found = (leading_includes.worth_having(one.headers) == headers for one in openings)
    return sum(islice(filter(None, found), number)) >= number

"""Which warm state goes when other warm state needs its memory: nothing in use goes for what was
wanted once, and nothing at all for what would not fit even so. Where a unit waits for it, warm
levels go, and the lean levels that were used least recently: these are back within seconds when
they are asked for, and the unit would take a minute without.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from warmcc.daemon.cuda.unit_text.eligibility import EXTENSION
from warmcc.daemon.cuda.warm.profile import CudaProfile

MOST = 6  # profiles with fork servers at a time
IDLE_SECONDS = 600.0
WARM_BYTES = 2_900_000_000  # what a level with torch's own headers holds,
EXTENSION_BYTES = 2_400_000_000  # one behind torch/extension.h, for the host alone,
LEAN_BYTES = 1_100_000_000  # one with the overlay's,
BARE_BYTES = 300_000_000  # and one without torch, for one architecture


class NoRoom(RuntimeError):
    """It does not fit beside what is worth as much."""


def of_warm(headers: tuple[str, ...]) -> int:
    """What a warm level with these holds."""
    if headers == EXTENSION:
        return EXTENSION_BYTES
    return WARM_BYTES if headers else BARE_BYTES


@dataclass
class Going:
    """What has to go: forks made ahead, the warm levels of profiles, and profiles."""

    ahead: bool = False
    levels: list[CudaProfile] = field(default_factory=list)
    profiles: list[CudaProfile] = field(default_factory=list)


def needed(
    profiles: list[CudaProfile],
    wants: CudaProfile,
    *,
    size: int | None = None,
    ahead: int,
    limit: int,
    waits: bool = False,
) -> Going:
    """What has to go until one more level for ``wants`` fits under ``limit`` bytes: first the
    ``ahead`` bytes of what was forked ahead, then warm levels, of which lean ones are the better
    part, then profiles, in each case the least recently used. ``size``: what the level holds, if
    that is known; ``waits``: a unit waits for it. Raises NoRoom."""
    ready = sorted((p for p in profiles if p.state == "ready" or p.levels), key=lambda p: p.used)
    grows = wants in ready
    alike = [
        p.levels[0].memory
        for p in ready
        if (p.torch, p.extras) == (wants.torch, wants.extras) and p.levels
    ]
    room = (
        size
        if size is not None
        else WARM_BYTES
        if grows
        else max(alike, default=LEAN_BYTES if wants.torch else BARE_BYTES)
    )
    held = sum(p.memory for p in profiles) + ahead
    places = MOST + grows - len(ready)
    going = Going()
    if held + room > limit:
        going.ahead, held = True, held - ahead
    less = [
        p for p in ready if p is not wants and _is_worth_less(p, wants, grows=grows, waits=waits)
    ]
    for profile in less:
        if held + room > limit and profile.torch and profile.warm:
            going.levels.append(profile)
            held -= profile.warm_memory
    for profile in less:
        if held + room <= limit and places > 0:
            break
        going.profiles.append(profile)
        held -= profile.memory - (profile.warm_memory if profile in going.levels else 0)
        places += 1
    if held + room > limit or places <= 0:
        raise NoRoom(
            f"it needs {room >> 20} MiB, and {limit >> 20} MiB are what fork servers may hold here "
            "(cuda_memory, and "
            f"half of the machine's memory), {held >> 20} of them in use"
        )
    return going


def _is_worth_less(profile: CudaProfile, wants: CudaProfile, *, grows: bool, waits: bool) -> bool:
    """Whether a profile may go for another one. One without torch is made anew in a second."""
    idle = not profile.torch or time.monotonic() - profile.used > IDLE_SECONDS
    return idle or (waits and not profile.busy) or (not grows and profile.worth < wants.asked)

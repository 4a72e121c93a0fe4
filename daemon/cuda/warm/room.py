"""Which warm state goes when other warm state needs its memory: nothing in use goes for what was
wanted once, and nothing at all for what would not fit even so. Where a unit waits for it, what was
used least recently goes: a lean level is back within seconds when it is asked for, and the unit
would take a minute without. For a warm level, which the mistakes in a set's units need, go the sets
of flags that were wanted far less often than this one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from warmcc.daemon.cuda.unit_text.eligibility import EXTENSION
from warmcc.daemon.cuda.warm.profile import CudaProfile

MOST = 12  # profiles with fork servers at a time
IDLE_SECONDS = 600.0
_FAR_MORE = 4  # times as often as another was a profile wanted that grows at its expense
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


def held(profiles: Iterable[CudaProfile], going: Going | None = None) -> int:
    """Bytes that the servers of profiles hold, without those that only what is ``going`` has."""
    levels, gone = (going.levels, going.profiles) if going is not None else ([], [])
    servers = set()
    for profile in profiles:
        if profile not in gone:
            found = profile.levels if profile not in levels else [profile.lean]
            servers |= {server for one in found if one is not None for server in one.servers}
    return sum(server.memory for server in servers)


def needed(
    profiles: list[CudaProfile], wants: CudaProfile, *, size: int | None = None,
    missing: float = 1.0, ahead: int, limit: int, waits: bool = False,
) -> Going:  # fmt: skip
    """What has to go until one more level for ``wants`` fits under ``limit`` bytes: first the
    ``ahead`` bytes of what was forked ahead, then profiles, the least recently used first, and of
    each its warm levels before the lean one, which is the better part. ``size``: what the level
    holds, if that is known; ``missing``: the share of it that no other has; ``waits``: a unit waits
    for it. Raises NoRoom."""
    ready = sorted((p for p in profiles if p.state == "ready" or p.levels), key=lambda p: p.used)
    grows = wants in ready
    room = math.ceil(_size(ready, wants, size) * missing)
    places = MOST + grows - len(ready)
    going = Going()

    def now() -> int:
        return held(profiles, going) + (0 if going.ahead else ahead)

    if now() + room > limit:
        going.ahead = True
    less = [
        p for p in ready if p is not wants and _is_worth_less(p, wants, grows=grows, waits=waits)
    ]
    for profile in less:
        if now() + room > limit and profile.torch and profile.warm:
            going.levels.append(profile)
        if now() + room > limit or places <= 0:
            going.profiles.append(profile)
            places += 1
    if now() + room > limit or places <= 0:
        raise NoRoom(
            f"it needs {room >> 20} MiB, and {limit >> 20} MiB are what fork servers may hold here "
            "(cuda_memory, and "
            f"half of the machine's memory), {now() >> 20} of them in use"
        )
    return going


def _size(ready: list[CudaProfile], wants: CudaProfile, size: int | None) -> int:
    """What a level for ``wants`` holds, as far as that can be told."""
    if size is not None:
        return size
    if wants in ready:
        return WARM_BYTES
    kind = (wants.torch, wants.extras)
    alike = [p.levels[0].size for p in ready if (p.torch, p.extras) == kind and p.levels]
    return max(alike, default=LEAN_BYTES if wants.torch else BARE_BYTES)


def _is_worth_less(profile: CudaProfile, wants: CudaProfile, *, grows: bool, waits: bool) -> bool:
    """Whether a profile may go for another one. One without torch is made anew in a second."""
    idle = not profile.torch or time.monotonic() - profile.used > IDLE_SECONDS
    if grows:
        rarer = not profile.busy and _FAR_MORE * profile.worth <= wants.worth
    else:
        rarer = profile.worth < wants.asked
    return idle or rarer or (waits and not profile.busy)

"""Which precompiled headers go, to make room for another one."""

from __future__ import annotations

from collections.abc import Iterable

from warmcc.daemon.pch.pch import Profile


class NoRoom(RuntimeError):
    """It does not fit."""


def going(profiles: Iterable[Profile], limit: int) -> list[Profile]:
    """Of a folder's profiles the least recently used, as many as have to go until another PCH of
    the largest size fits under a limit in bytes. Raises NoRoom where it would not fit even so."""
    kept = sorted((one for one in profiles if one.record is not None), key=lambda one: one.used)
    size = sum(one.size for one in kept)
    room = max((one.size for one in kept), default=0)
    found: list[Profile] = []
    while size + room > limit and kept:
        found.append(kept.pop(0))
        size -= found[-1].size
    if size + room > limit:
        raise NoRoom(f"it does not fit under {limit >> 20} MiB (profile_size)")
    return found

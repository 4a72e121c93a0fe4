"""Warm levels of profiles: each is started when a unit first needs it, in the background, and in
haste once a second one does.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from warmcc.daemon.cuda.warm import room
from warmcc.daemon.cuda.warm.fork_servers import ServerDied
from warmcc.daemon.cuda.warm.level import Level
from warmcc.daemon.cuda.warm.profile import CudaProfile, Growth, Refusal
from warmcc.daemon.cuda.warm.start import Starter
from warmcc.daemon.system.background import Background
from warmcc.daemon.system.bounds import Reasons, forget_oldest
from warmcc.daemon.system.permits import Turns

log = logging.getLogger(__name__)

NOT_YET = "not warm yet"
RETRY_SECONDS = 600.0
_LOOK_SECONDS = 0.02
_AT_ONCE_SECONDS = 90.0  # a unit waits no longer for one
_REFUSALS = 100  # of one profile are remembered
Headers = tuple[str, ...]


class MakesRoom(Protocol):
    def __call__(
        self, wants: CudaProfile, *, size: int | None = None, missing: float = 1.0
    ) -> None:
        """Raises room.NoRoom."""


class Growing:
    """Starts them for all profiles. ``is_kept`` tells whether a profile was not dropped, ``close``
    closes one that was; ``dropped`` counts levels that could not be made."""

    def __init__(
        self, starter: Starter, background: Background, turns: Turns, *, make_room: MakesRoom,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        is_kept: Callable[[CudaProfile], bool], close: Callable[[CudaProfile], Awaitable[None]],
        dropped: Reasons,
    ) -> None:  # fmt: skip
        self._starter = starter
        self._background = background
        self._turns = turns
        self._make_room = make_room
        self._spawn = spawn
        self._is_kept = is_kept
        self._close = close
        self._dropped = dropped

    def want(self, profile: CudaProfile, headers: Headers) -> None:
        """Start the level behind these headers, unless it is there; the second time it no longer
        gives way to builds."""
        if headers in profile.warm:
            return
        growth = profile.growing.get(headers)
        if growth is not None and growth.goes_on:
            self._hasten(profile, headers, growth)
            return
        refused = profile.refused.get(headers)
        if refused is None or time.monotonic() - refused.at > RETRY_SECONDS:
            forget_oldest(profile.refused, _REFUSALS)
            profile.refused[headers] = Refusal(NOT_YET)
            growth = profile.growing[headers] = Growth()
            growth.tasks.append(self._spawn(self._later(profile, headers, growth)))

    async def at_once(self, profile: CudaProfile, headers: Headers) -> Level | None:
        """Wait for that level, which gives way to no build; None where there is none in time."""
        if self.begin(profile, headers):
            until = time.monotonic() + _AT_ONCE_SECONDS
            while _is_awaited(profile, headers) and time.monotonic() < until:
                await asyncio.sleep(_LOOK_SECONDS)
        return profile.warm.get(headers)

    def begin(self, profile: CudaProfile, headers: Headers) -> bool:
        """Start that level so that it gives way to no build; whether it is being made now."""
        self.want(profile, headers)
        growth = profile.growing.get(headers)
        goes_on = growth is not None and growth.goes_on
        if growth is not None and goes_on:
            self._hasten(profile, headers, growth)
        return goes_on

    def _hasten(self, profile: CudaProfile, headers: Headers, growth: Growth) -> None:
        if not growth.haste.wanted:
            growth.haste.want()
            growth.tasks.append(self._spawn(self._grow(profile, headers, growth)))

    async def _later(self, profile: CudaProfile, headers: Headers, growth: Growth) -> None:
        async with self._turns.turn(lambda: profile.missed):
            if self._is_kept(profile):
                await self._background.quiet()
                await self._grow(profile, headers, growth)

    async def _grow(self, profile: CudaProfile, headers: Headers, growth: Growth) -> None:
        if growth.begun:
            return
        growth.begun, started = True, time.monotonic()
        try:
            missing = await self._starter.missing(profile, headers)
            self._make_room(profile, size=room.of_warm(headers), missing=missing)
            await self._starter.warm(profile, headers, growth.haste)
            profile.refused.pop(headers, None)
            await self._close(profile)
            took = time.monotonic() - started
            log.info("CUDA profile %s has a warm level after %.1f s", profile.key[:12], took)
        except (OSError, RuntimeError, ServerDied) as error:
            # there may be room the next time
            at = -math.inf if isinstance(error, room.NoRoom) else time.monotonic()
            profile.refused[headers] = Refusal(str(error)[-1000:], at)
            self._dropped["a warm level could not be made"] += 1
            log.warning("CUDA profile %s gets no warm level: %s", profile.key[:12], error)


def _is_awaited(profile: CudaProfile, headers: Headers) -> bool:
    refused = profile.refused.get(headers)
    return headers not in profile.warm and refused is not None and refused.reason == NOT_YET

"""The warm state for CUDA units: which sets of flags have it, and its life.

A profile is what one set of flags needs: nvcc's plan for them, the host's prelude, and levels of
fork servers. Profiles are made in the background, one at a time, when the machine is quiet, or with
many processors beside the first unit that does without; the least recently used is closed when they
hold too much memory. A unit with flags that nobody has used before waits where that is quicker than
to do without: where the text of the host's prelude is there, which many sets of flags share; where
such a unit was built without it before; and where the units of a request need all processors.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import shutil
import time
from pathlib import Path
from typing import Any

from warmcc import paths, status
from warmcc.daemon.closure.closure import ChangedDuringBuild, Closures
from warmcc.daemon.cuda.warm import room
from warmcc.daemon.cuda.warm.fork_servers import SOCKETS, ServerDied
from warmcc.daemon.cuda.warm.growing import NOT_YET, RETRY_SECONDS, Growing
from warmcc.daemon.cuda.warm.host_choice import HostChoice
from warmcc.daemon.cuda.warm.level import Level
from warmcc.daemon.cuda.warm.prefork import Ahead
from warmcc.daemon.cuda.warm.profile import CudaProfile, Need
from warmcc.daemon.cuda.warm.start import Starter
from warmcc.daemon.store.trust import Trust
from warmcc.daemon.system import resources
from warmcc.daemon.system.background import Background
from warmcc.daemon.system.bounds import Reasons

log = logging.getLogger(__name__)

_FAILED = 100  # profiles that could not be made are remembered
_AT_ONCE_SECONDS = 60.0  # a unit waits no longer for fork servers, which take a few seconds
_IN_HASTE_SECONDS = 120.0  # nor for those of a profile that has to be begun
_EACH = 2  # steps of a unit that run side by side where nothing is warm
_SPARE = 2  # steps that run beside those that have a processor each, as with ninja
_WITHOUT = 2.0  # weight of units with few headers that do without what is not there yet
_PRECOMPILES = 0.4  # nvcc takes longer for such a unit than g++ takes to precompile a text
_LOOK_SECONDS = 0.02
RESTED = "nobody asked for a while"
_LEAST = 9 << 29  # bytes that fork servers may hold where the settings say nothing


class CudaProfiles:
    """All of a daemon. Methods are called on the event loop."""

    def __init__(
        self, root: Path, closures: Closures, starter: Starter, hosts: HostChoice,
        background: Background, memory: int, trust: Trust,
    ) -> None:  # fmt: skip
        self.root = root
        self._closures = closures
        self._background = background
        self._memory = memory
        self._trust = trust
        self.starter = starter
        self._hosts = hosts
        starter.profiles = hosts.profiles = lambda: self.by_key.values()
        starter.on_death = lambda profile: self.drop(profile, "a fork server died")
        self.ahead = Ahead(background.quiet, lambda size: self._held() + size <= self._limit())
        self._turns = background.turns()
        some = max(resources.precompilers() // 2, background.has_room())
        self._host_turns = background.turns(some) if some else self._turns
        self._tasks: set[asyncio.Task[None]] = set()
        self.dropped = Reasons()
        self.growing = Growing(
            starter, background, self._turns, make_room=self._make_room, spawn=self._spawn,
            is_kept=lambda profile: self.by_key.get(profile.key) is profile,
            close=self._close_dropped, dropped=self.dropped,
        )  # fmt: skip
        self.by_key: dict[str, CudaProfile] = {}

    def open(self) -> None:
        """Remove what an earlier daemon's servers left."""
        for left in paths.runtime_dir().glob(SOCKETS):
            left.unlink(missing_ok=True)
        shutil.rmtree(self.root / "servers", ignore_errors=True)
        self._hosts.open()

    async def get(self, wanted: CudaProfile, need: Need) -> CudaProfile | str:
        """The one of that key, if it serves, or why it does not: it is made if need be. Where the
        unit waits, also one that serves so soon that this is quicker than to do without it."""
        waits = need.waits
        if (profile := self.by_key.get(wanted.key)) is not None:
            wanted.asked, wanted.missed = profile.asked, profile.missed
            wanted.without = profile.without
            if profile.serves and not self._holds(profile):
                profile = None
        if profile is None or (
            profile.state == "failed" and time.monotonic() - profile.failed_at > RETRY_SECONDS
        ):
            profile = wanted
            self.by_key.pop(profile.key, None)  # what is tried again is the newest
            self.by_key[profile.key] = profile
            for one in [p for p in self.by_key.values() if p.state == "failed"][:-_FAILED]:
                del self.by_key[one.key]
            self._spawn(self._build(profile))
        if waits is not None and not await self._pays(profile, need):
            waits = None
        if profile.state == "building":
            async with contextlib.nullcontext() if waits is None or profile.serves else waits():
                serves = waits is not None and await self._wait(profile, need.units)
        else:
            serves = profile.serves
        if not serves:
            profile.asked += 1
            profile.missed += not need.ahead
            profile.without += 0 if need.ahead else need.weight
            if profile.state == "building":
                making = sum(p.begun and p.state == "building" for p in self.by_key.values())
                if need.weight and not need.ahead and making < resources.precompilers() > 1:
                    self._begin(profile)
                return NOT_YET
            return f"could not be made warm: {profile.reason}"
        profile.used = time.monotonic()
        profile.served += 1
        return profile

    async def _pays(self, profile: CudaProfile, need: Need) -> bool:
        """Whether it pays to wait for a profile's host's prelude: for units with few headers only
        once some have done without it, or once it is there (its text, for one of some weight)."""
        if need.units >= 1 or profile.without >= _WITHOUT:
            return True
        if not await self._hosts.find(profile) or profile.host is None:
            return False
        return need.weight >= _PRECOMPILES or profile.host.making.is_done

    async def devices_alone(self, wanted: CudaProfile) -> CudaProfile | None:
        """The one of that key while it is being made, once it has its lean level."""
        profile = self.by_key.get(wanted.key)
        if profile is None or profile.state != "building":
            return None
        giving = self._spawn(self._give_lean_at_once(profile))
        await asyncio.wait([giving], timeout=_AT_ONCE_SECONDS)
        return profile if profile.lean is not None and profile.lean.alive else None

    async def _give_lean(self, profile: CudaProfile, *, waits: bool) -> None:
        """Give a profile its lean level, unless it has one; ``waits``: a unit waits for it."""
        async with profile.lean_lock:
            if profile.lean is None and profile.state == "building":
                missing = await self.starter.missing(profile)
                self._make_room(profile, missing=missing, waits=waits)
                await self.starter.lean(profile)
                await self._close_dropped(profile)

    async def _give_lean_at_once(self, profile: CudaProfile) -> None:
        """Why there is none is told when the whole profile is made."""
        with contextlib.suppress(OSError, RuntimeError, ValueError, ServerDied):
            await self._give_lean(profile, waits=True)

    async def make_host(self, profile: CudaProfile) -> None:
        """Make its host's prelude. Raises OSError, RuntimeError, ChangedDuringBuild."""
        async with self._host_turns.turn(lambda: 0):
            await self._background.quiet()
            await self._hosts.give(profile)
            assert profile.host is not None
            await profile.host.making.finish()

    def _holds(self, profile: CudaProfile) -> bool:
        """Whether its servers live, are trusted, and have read what the headers still say."""
        host = profile.host
        if not all(found.alive for found in profile.levels):
            cause = "a fork server died"
        elif not all(found.maker in self._trust for found in profile.levels):
            cause = "made something else than nvcc"
        elif host is None:
            return True  # it is being made
        elif not host.header.exists():
            cause = "the host's prelude is gone"
        elif host.is_hidden_by(profile.ignored):
            cause = "a header of the caller's may be found in place of torch's"
        elif not host.holds(self._closures):
            cause = "a header changed"
        else:
            return True
        self.drop(profile, cause)
        return False

    def drop(self, profile: CudaProfile, cause: str) -> None:
        """Close a profile's servers; the next request makes it anew."""
        if self.by_key.get(profile.key) is not profile:
            return  # another unit noticed it first
        level = logging.INFO if cause == RESTED else logging.WARNING
        log.log(level, "CUDA profile %s dropped: %s", profile.key[:12], cause)
        self.dropped[cause] += 1
        del self.by_key[profile.key]
        for task in [task for growth in profile.growing.values() for task in growth.tasks]:
            task.cancel()
        self._spawn(self._close(profile))

    def rest(self) -> None:
        """Give the memory of all back that nobody uses; the host's preludes stay on disk."""
        for profile in [p for p in self.by_key.values() if p.state == "ready" and not p.busy]:
            self.drop(profile, RESTED)
        self.ahead.let_go()

    async def _close_dropped(self, profile: CudaProfile) -> None:
        """Close what was added to a profile that was dropped meanwhile, with the levels that it
        had.
        """
        if self.by_key.get(profile.key) is not profile:
            await self._close(profile)

    async def _close_level(self, found: Level) -> None:
        if self.ahead.level is found:
            self.ahead.let_go()
        await found.close()

    async def _close(self, profile: CudaProfile) -> None:
        growing = {task for growth in profile.growing.values() for task in growth.tasks}
        if others := growing - {asyncio.current_task()}:
            await asyncio.wait(others)  # they were cancelled, and clean up
        for found in profile.levels:
            await self._close_level(found)

    # ------------------------------------------------------------------ making

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _build(self, profile: CudaProfile) -> None:
        async with self._turns.turn(lambda: profile.missed):
            await self._background.quiet(profile.haste.urgency)
            if not profile.begun:
                await self._make(profile)

    def _begin(self, profile: CudaProfile) -> None:
        if not profile.begun:
            profile.begun = True
            self._spawn(self._make(profile, waits=True))

    async def _wait(self, profile: CudaProfile, units: float) -> bool:
        """Wait for a profile that is being made, where that is quicker for so many units: whether
        it serves. What is wanted for the second time is made now in any case. Where others
        leave processors for all steps of the units, nvcc's own take no longer than a host's prelude
        from the beginning."""
        alone = _EACH * units < self._background.steps_left(_EACH * units) - _SPARE
        is_far = alone and not await self._hosts.find(profile)
        if is_far and not profile.asked:
            return False
        profile.haste.want()
        self._begin(profile)
        until = time.monotonic() + (0.0 if is_far else _IN_HASTE_SECONDS)
        while profile.state == "building" and not profile.serves and time.monotonic() < until:
            await asyncio.sleep(_LOOK_SECONDS)
        return profile.serves and not is_far

    async def _make(self, profile: CudaProfile, *, waits: bool = False) -> None:
        profile.begun = True
        started = time.monotonic()
        try:
            await self._give_levels(profile, waits=waits)
            assert profile.host is not None
            await profile.host.making.finish()
            if profile.torch:  # again, if it went for another one meanwhile
                await self._give_lean(profile, waits=waits or profile.haste.wanted)
            await self.starter.check(profile)
            profile.state = "ready"
            await self._close_dropped(profile)
            if profile.lean is not None and profile.lean.alive:
                self.ahead.want(profile.lean)
            took = time.monotonic() - started
            log.info("CUDA profile %s ready after %.1f s", profile.key[:12], took)
        except (OSError, RuntimeError, ValueError, ServerDied, ChangedDuringBuild) as error:
            # there may be room the next time
            at = -math.inf if isinstance(error, room.NoRoom) else time.monotonic()
            profile.state, profile.reason, profile.failed_at = "failed", str(error)[-1000:], at
            self.dropped["could not be made"] += 1
            log.warning("CUDA profile %s could not be made: %s", profile.key[:12], error)
            await self._close(profile)

    async def _give_levels(self, profile: CudaProfile, *, waits: bool) -> None:
        """Give a profile all that serves units, but for the end of the host's prelude."""
        if profile.lean is None:  # without room for it, nothing need be begun
            missing = await self.starter.missing(profile) if profile.torch else 1.0
            self._make_room(profile, missing=missing, waits=waits)
        if waits and profile.host is None:  # what takes longest begins first
            self._spawn(self._hosts.begin(profile))
        if profile.torch:  # this takes seconds, and the devices' half needs no more
            await self._give_lean(profile, waits=waits)
        if profile.host is None:
            await self._hosts.give(profile)
        if not profile.torch:
            await self.starter.warm(profile, profile.headers, profile.haste)

    async def built(self) -> None:
        """Wait until nothing is being made."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    def _held(self) -> int:
        return room.held(self.by_key.values()) + self.ahead.memory

    def _limit(self) -> int:
        """Bytes that all servers may hold. Compilers need memory too."""
        return min(
            self._memory or max(_LEAST, resources.memory_limit() // 3),
            resources.memory_limit() // 2,
            self._held() + resources.available_memory() // 2,
        )

    def _make_room(
        self, wants: CudaProfile, *, size: int | None = None, missing: float = 1.0,
        waits: bool = False,
    ) -> None:  # fmt: skip
        """Close what has to go for one more level, of which this share is ``missing``. Raises
        room.NoRoom, and then all stay."""
        going = room.needed(
            list(self.by_key.values()), wants, size=size, missing=missing,
            ahead=self.ahead.memory, limit=self._limit(), waits=waits,
        )  # fmt: skip
        if going.ahead:
            self.ahead.let_go()
        for profile in going.levels:
            self._close_warm(profile)
        for profile in going.profiles:
            if profile.state == "ready":
                self.drop(profile, "evicted")
            elif profile.lean is not None:  # the rest of it is still being made
                self.dropped["a lean level was evicted"] += 1
                self._spawn(self._close_level(profile.lean))
                profile.lean = None

    def _close_warm(self, profile: CudaProfile) -> None:
        self.dropped["a warm level was evicted"] += 1
        for found in profile.warm.values():
            self._spawn(self._close_level(found))
        profile.warm.clear()

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._hosts.close()
        self.ahead.let_go()
        await asyncio.gather(*(self._close(profile) for profile in self.by_key.values()))

    def report(self) -> list[status.CudaProfile]:
        """One row per profile, for ``warmcc status`` and ``warmcc profiles``."""
        return [profile.report() for profile in self.by_key.values()]

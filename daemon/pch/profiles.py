"""All profiles of a daemon: which a unit may use, which are being built, which to evict.

A unit may use the PCH of every prelude that its own leading includes begin with. What it would
rather have had is built when the machine is quiet: at once when stock itself puts it in front or it
is a single header of torch, otherwise on its second appearance. The least recently used go when the
limit on their size is reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import time
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from warmcc import status
from warmcc.daemon.closure.closure import ChangedDuringBuild, Closures
from warmcc.daemon.pch import eviction, leading_includes, lean, pch
from warmcc.daemon.pch.machine_store import SharedProfiles
from warmcc.daemon.pch.matching import Matcher, Wanted
from warmcc.daemon.pch.pch import Finisher, PchBuilder, Profile, State, fingerprint
from warmcc.daemon.system import resources
from warmcc.daemon.system.background import Background
from warmcc.daemon.system.bounds import Reasons
from warmcc.daemon.toolchain import Toolchain

log = logging.getLogger(__name__)

RETRY_SECONDS = 600.0  # a profile that failed to build is tried again after this
SETTLE_SECONDS = 10.0
LONGEST = 64  # headers of a prelude that are looked at
_SIGHTINGS = 1000  # preludes whose appearances are counted
_FAILED = 100  # profiles that could not be built are remembered


class Profiles:
    """All profiles. Methods are called on the event loop; slow reading happens in threads."""

    def __init__(
        self, builder: PchBuilder, closures: Closures, *, root: Path, size_limit: int,
        background: Background, finisher: Finisher | None, shared: SharedProfiles | None = None,
    ) -> None:  # fmt: skip
        self.root = root
        self._builder = builder
        self._closures = closures
        self._size_limit = size_limit
        self._background = background
        self._finisher = finisher
        self._shared = shared
        slots = resources.precompilers()
        self._turns = background.turns(max(slots, 2 if background.has_room() else 1))
        # Where there are processors for it, what is asked for waits for nothing made ahead.
        self._asked_turns = background.turns(slots // 2) if slots > 1 else self._turns
        self._tasks: set[asyncio.Task[None]] = set()
        self._verifying: set[asyncio.Task[None]] = set()
        self._sightings: Counter[str] = Counter()
        self.matcher = Matcher(self._ready, self._failed)
        self._configured: set[str] = set()  # those made ahead
        self.by_id: dict[str, Profile] = {}
        self.dropped = Reasons()
        self.unmatched = Reasons()

    def open(self) -> None:
        """Adopt an earlier daemon's profiles: verify complete ones in the background.
        Incomplete ones are removed."""
        self.root.mkdir(parents=True, exist_ok=True)
        for folder in self.root.iterdir():
            record = pch.read_record(folder)
            if record is None:
                shutil.rmtree(folder, ignore_errors=True)
                continue
            profile = Profile(
                folder.name, folder, record.flags, tuple(record.headers), State.UNVERIFIED, record
            )
            profile.used = (folder / "profile").stat().st_mtime
            self.by_id[profile.id] = profile
            self._check(profile)

    # ------------------------------------------------------------------ which one may be used

    def find(
        self, wanted: Wanted, headers: tuple[str, ...], *, exact: bool = False,
        macros: leading_includes.Macros = (),
    ) -> Profile | None:  # fmt: skip
        """The profile whose PCH may stand for the first of these includes, or None.
        ``exact``: for all of them. ``macros`` are the unit's own in front of each, None
        where nothing of the unit's own is."""
        headers = headers[:LONGEST]
        found, reason = None, ""
        while (
            macros
            and headers
            and (reason := self.matcher.why_not_past(wanted, headers, macros[len(headers) - 1]))
        ):
            headers = headers[:-1]
        for size in range(len(headers), len(headers) - 1 if exact else 0, -1):
            if macros and (
                reason := self.matcher.why_not_past(wanted, headers[:size], macros[size - 1])
            ):
                continue  # of these the names of all headers are known
            if (found := self.usable(wanted, headers[:size])) is not None:
                found.uses += 1
                found.used = time.time()
                break
        if reason:
            self.unmatched[reason] += 1
        better = headers if exact else leading_includes.worth_having(headers)
        if better and (found is None or not self._covers(found, better)):
            self._want(wanted, better)
        return found

    @staticmethod
    def _covers(profile: Profile, headers: tuple[str, ...]) -> bool:
        return len(profile.headers) >= len(headers) or profile.includes.issuperset(headers)

    def usable(self, wanted: Wanted, headers: tuple[str, ...]) -> Profile | None:
        """The profile of exactly these headers, if its PCH may be used."""
        return self._ready(self.matcher.identify(wanted, headers)[0])

    def known(self, wanted: Wanted, headers: tuple[str, ...]) -> Profile | None:
        """The profile of exactly these headers, whatever its state."""
        return self.by_id.get(self.matcher.identify(wanted, headers)[0])

    def _ready(self, key: str) -> Profile | None:
        profile = self.by_id.get(key)
        return (
            profile
            if profile is not None and profile.state == State.READY and self._holds(profile)
            else None
        )

    def _failed(self, key: str) -> bool:
        profile = self.by_id.get(key)
        return profile is not None and profile.state is State.FAILED and profile.failed_at > 0

    async def is_same_with(self, profile: Profile, macro: str) -> bool:
        """Whether a macro for which g++ refuses a PCH makes no difference to its headers."""
        return await asyncio.to_thread(profile.is_same_with, macro, self._closures)

    async def settle(self) -> None:
        """Wait for PCHs that are being read after a start: building without them takes longer."""
        if self._verifying:
            await asyncio.wait(list(self._verifying), timeout=SETTLE_SECONDS)

    async def prepare(self, toolchain: Toolchain) -> None:
        """Have made what every first PCH of a toolchain needs, which takes a second."""
        if self._finisher is not None:
            await self._finisher(toolchain, [])

    async def built(self) -> None:
        """Wait until nothing is being built or verified."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    # ------------------------------------------------------------------ building what is missing

    def _want(self, wanted: Wanted, headers: tuple[str, ...]) -> None:
        key, flags = self.matcher.identify(wanted, headers)
        profile = self.by_id.get(key)
        if profile is not None and (
            profile.state != State.FAILED or time.time() - profile.failed_at < RETRY_SECONDS
        ):
            self.unmatched[f"{profile.state.value}: {profile.title}"] += 1
            profile.asked += wanted.misses
            return
        if len(self._sightings) > _SIGHTINGS:
            self._sightings.clear()
        self._sightings[key] += 1
        missing = Profile(
            key, self.root / key, flags, headers, State.BUILDING,
            asked=max(self._sightings[key], wanted.misses),
        )  # fmt: skip
        if self._sightings[key] < (
            1 if headers in lean.TITLES or leading_includes.is_heavy(headers) else 2
        ):
            self.unmatched[f"seen once: {missing.title}"] += 1
            return
        self.unmatched[f"new: {missing.title}"] += 1
        self.start(missing, wanted)

    def prewarm(self, wanted: Wanted, headers: tuple[str, ...]) -> None:
        """Have a profile built that no request has asked for yet."""
        key, flags = self.matcher.identify(wanted, headers)
        self._configured.add(key)
        if key not in self.by_id:
            self.start(Profile(key, self.root / key, flags, headers, State.BUILDING), wanted)

    def start(self, profile: Profile, wanted: Wanted) -> None:
        self.by_id.pop(profile.id, None)  # what is tried again is the newest
        self.by_id[profile.id] = profile
        for one in [p for p in self.by_id.values() if p.state == State.FAILED][:-_FAILED]:
            del self.by_id[one.id]
        self._spawn(self._adopt_or_build(profile, wanted))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def hasten(self, wanted: Wanted, headers: tuple[str, ...]) -> Profile:
        """Have the profile of exactly these headers built in haste, where it is not there."""
        key, flags = self.matcher.identify(wanted, headers)
        if (profile := self.by_id.get(key)) is None:
            profile = Profile(key, self.root / key, flags, headers, State.BUILDING)
            profile.haste.want()
            self.start(profile, wanted)
        profile.haste.want()
        return profile

    async def make(self, wanted: Wanted, headers: tuple[str, ...], seconds: float) -> None:
        """As ``hasten``, and wait, no longer than so many seconds, where it did not fail before."""
        profile = self.hasten(wanted, headers)
        if profile.state is State.BUILDING and not profile.is_long:
            try:
                await asyncio.wait_for(profile.settled.wait(), seconds)
            except asyncio.TimeoutError:
                profile.is_long = True

    async def _adopt_or_build(self, profile: Profile, wanted: Wanted) -> None:
        try:
            await self._begin(profile, wanted)
        finally:
            profile.settled.set()

    async def _begin(self, profile: Profile, wanted: Wanted) -> None:
        if self._shared is None:
            await self._build(profile, wanted)
        elif (found := await asyncio.to_thread(self._shared.find, profile)) is not None:
            profile.folder, profile.record = found
            profile.state = State.READY
            log.info("profile %s is the machine's: %s", profile.id[:12], profile.title)
        else:
            await self._build(profile, wanted)
            await asyncio.to_thread(
                self._shared.offer, profile, asked=profile.id in self._configured
            )

    async def _build(self, profile: Profile, wanted: Wanted) -> None:
        turns = self._turns if profile.id in self._configured else self._asked_turns
        turn = turns.turn(lambda: profile.asked)
        async with contextlib.nullcontext() if profile.haste.wanted else turn:
            started = time.monotonic()
            try:
                await self._background.quiet(lambda: profile.asked, profile.haste)
                await asyncio.to_thread(self._make_room)
                finish = None
                if self._finisher is not None:
                    finish = await self._finisher(wanted.toolchain, profile.flags)
                try:
                    record = await self._builder.build(
                        profile, wanted.toolchain, wanted.environment, finish
                    )
                except RuntimeError:
                    if finish is None:
                        raise
                    self.dropped["finished PCH failed"] += 1
                    record = await self._builder.build(
                        profile, wanted.toolchain, wanted.environment, None
                    )
                profile.record, profile.state = record, State.READY
                seconds = time.monotonic() - started
                log.info(
                    "profile %s ready after %.1f s: %s", profile.id[:12], seconds, profile.title
                )
            except (OSError, ChangedDuringBuild, RuntimeError) as error:
                shutil.rmtree(profile.folder, ignore_errors=True)
                profile.state, profile.reason = State.FAILED, str(error)
                # There may be the next time
                profile.failed_at = 0.0 if isinstance(error, eviction.NoRoom) else time.time()
                self.dropped["build failed"] += 1
                log.warning(
                    "profile %s (%s) could not be built: %s", profile.id[:12], profile.title, error
                )
            except asyncio.CancelledError:
                shutil.rmtree(profile.folder, ignore_errors=True)
                raise

    # ------------------------------------------------------------------ checking and dropping

    def _check(self, profile: Profile) -> None:
        task = self._spawn(self._verify(profile))
        self._verifying.add(task)
        task.add_done_callback(self._verifying.discard)

    async def _verify(self, profile: Profile) -> None:
        """Read the whole PCH once and compare its digest."""
        assert profile.record is not None
        profile.record = await asyncio.to_thread(pch.verified, profile.record, profile.gch)
        if profile.record is None:
            self._drop(profile, "damaged")
        else:
            profile.state = State.READY

    def _holds(self, profile: Profile) -> bool:
        record = profile.record
        assert record is not None
        try:
            stat = fingerprint(profile.gch)
        except OSError:
            self._drop(profile, "missing")
            return False
        if stat != record.stat:
            profile.state = State.UNVERIFIED
            self._check(profile)
            return False
        if not self._closures.holds(record.closure):
            self._drop(profile, "a header changed")
            return False
        return True

    def refused(self, profile: Profile, cause: str) -> None:
        """A compiler failed with this PCH for a reason that is not the user's: rebuild it."""
        if self.by_id.get(profile.id) is profile:
            self._drop(profile, cause)

    def _drop(self, profile: Profile, cause: str) -> None:
        log.warning("profile %s dropped: %s", profile.id[:12], cause)
        self.dropped[cause] += 1
        self.by_id.pop(profile.id, None)
        self._remove(profile)

    def _remove(self, profile: Profile) -> None:
        if profile.folder.parent == self.root:  # and not the machine's
            shutil.rmtree(profile.folder, ignore_errors=True)

    def _make_room(self) -> None:
        """Evict what was not used for longest. Raises NoRoom."""
        own = [one for one in self.by_id.values() if one.folder.parent == self.root]
        for profile in eviction.going(own, self._size_limit):
            self.by_id.pop(profile.id, None)
            self.dropped["evicted"] += 1
            self._remove(profile)

    # ------------------------------------------------------------------ telling

    def report(self) -> list[status.Profile]:
        """One row per profile, for ``warmcc status`` and ``warmcc profiles``."""
        return [one.report(shared=one.folder.parent != self.root) for one in self.by_id.values()]

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

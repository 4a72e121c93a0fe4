"""g++'s precompiled headers, one per profile: built in the background, checked before each use, evicted by least use.

On disk, in ``<cache>/profiles/<id>/``: ``prelude.h``, ``prelude.h.gch``, ``prelude.h.gch.sum`` (what ccache digests in
its place) and ``profile`` (a checked record, written last: without it the folder is rubbish from a daemon that died).
GCC does not checksum a PCH, so the daemon does: in full when it first meets the file and whenever its stat fingerprint
has changed, and by the fingerprint before each use.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from warmcc import digest
from warmcc.daemon import ninja, process
from warmcc.daemon.closure import ChangedDuringBuild, Closure, Closures, Marker
from warmcc.daemon.toolchain import Toolchain
from warmcc.daemon.toolchain.flags import include_folders

log = logging.getLogger(__name__)

State = Literal["unverified", "building", "ready", "failed"]
RETRY_SECONDS = 600.0  # a profile that failed to build is tried again after this


class Record(msgspec.Struct, frozen=True):
    """What is kept about a finished PCH. ``stat`` is its (size, mtime_ns, ctime_ns, inode)."""

    flags: str
    prelude: str
    sha256: str
    stat: tuple[int, int, int, int]
    closure: Closure


@dataclass(eq=False)
class Profile:
    """One profile and the life of its PCH."""

    id: str
    folder: Path
    flags: str
    prelude: str
    state: State
    record: Record | None = None
    uses: int = 0
    used: float = field(default_factory=time.time)
    failed_at: float = 0.0
    reason: str = ""

    @property
    def header(self) -> Path:
        return self.folder / "prelude.h"

    @property
    def gch(self) -> Path:
        return self.folder / "prelude.h.gch"


def _fingerprint(path: Path) -> tuple[int, int, int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


class Profiles:
    """All profiles of this daemon. Methods are called on the event loop; slow reading happens in threads."""

    def __init__(
        self,
        root: Path,
        closures: Closures,
        runner: process.Runner,
        *,
        size_limit: int,
        ninja_path: str,
        timeout: float,
        quiet: Callable[[], Awaitable[None]],
    ) -> None:
        self.root = root
        self._quiet = quiet
        self._closures = closures
        self._runner = runner
        self._size_limit = size_limit
        self._ninja = ninja_path
        self._timeout = timeout
        self._one_at_a_time = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self.by_id: dict[str, Profile] = {}
        self.dropped: Counter[str] = Counter()

    def open(self) -> None:
        """Adopt what an earlier daemon left: complete folders are verified in the background, others removed."""
        self.root.mkdir(parents=True, exist_ok=True)
        for folder in self.root.iterdir():
            record = self._read(folder)
            if record is None:
                shutil.rmtree(folder, ignore_errors=True)
                continue
            profile = Profile(folder.name, folder, record.flags, record.prelude, "unverified", record)
            profile.used = (folder / "profile").stat().st_mtime
            self.by_id[profile.id] = profile
            self._spawn(self._verify(profile))

    @staticmethod
    def _read(folder: Path) -> Record | None:
        try:
            data = (folder / "profile").read_bytes()
            if digest.of_bytes(data[64:]).encode() != data[:64]:
                return None
            return msgspec.msgpack.decode(data[64:], type=Record)
        except (OSError, msgspec.DecodeError):
            return None

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _verify(self, profile: Profile) -> None:
        """Read the whole PCH once and compare its digest."""
        record = profile.record
        assert record is not None
        try:
            stat = _fingerprint(profile.gch)
            intact = await asyncio.to_thread(digest.of_file, profile.gch) == record.sha256
        except OSError:
            intact = False
        if not intact:
            self._drop(profile, "damaged")
        else:
            profile.record = msgspec.structs.replace(record, stat=stat)
            profile.state = "ready"

    def _drop(self, profile: Profile, cause: str) -> None:
        log.warning("profile %s dropped: %s", profile.id[:12], cause)
        self.dropped[cause] += 1
        self.by_id.pop(profile.id, None)
        shutil.rmtree(profile.folder, ignore_errors=True)

    def find(
        self, toolchain: Toolchain, flags: str, prelude: str, keyed: dict[str, str], environment: dict[str, str]
    ) -> Profile | None:
        """The profile whose PCH may be used now, or None; one that is not there yet is built in the background.

        ``keyed`` are the variables that are part of the profile's identity, ``environment`` all that g++ gets.
        """
        key = digest.of_value([toolchain.digest, flags, prelude, keyed])
        profile = self.by_id.get(key)
        if profile is not None and profile.state == "ready" and self._holds(profile):
            profile.uses += 1
            profile.used = time.time()
            return profile
        profile = self.by_id.get(key)
        if profile is None or (profile.state == "failed" and time.time() - profile.failed_at > RETRY_SECONDS):
            self._start(Profile(key, self.root / key, flags, prelude, "building"), toolchain, environment)
        return None

    def _holds(self, profile: Profile) -> bool:
        record = profile.record
        assert record is not None
        try:
            stat = _fingerprint(profile.gch)
        except OSError:
            self._drop(profile, "missing")
            return False
        if stat != record.stat:
            profile.state = "unverified"
            self._spawn(self._verify(profile))
            return False
        if not self._closures.holds(record.closure):
            self._drop(profile, "a header changed")
            return False
        return True

    def _start(self, profile: Profile, toolchain: Toolchain, environment: dict[str, str]) -> None:
        self.by_id[profile.id] = profile
        self._spawn(self._build(profile, toolchain, environment))

    async def _build(self, profile: Profile, toolchain: Toolchain, environment: dict[str, str]) -> None:
        async with self._one_at_a_time:
            try:
                await self._quiet()
                await self._build_now(profile, toolchain, environment)
            except (OSError, ChangedDuringBuild, RuntimeError) as error:
                shutil.rmtree(profile.folder, ignore_errors=True)
                profile.state, profile.failed_at, profile.reason = "failed", time.time(), str(error)
                self.dropped["build failed"] += 1
                log.warning("profile %s (%s) could not be built: %s", profile.id[:12], profile.flags, error)
            except asyncio.CancelledError:
                shutil.rmtree(profile.folder, ignore_errors=True)
                raise

    async def _build_now(self, profile: Profile, toolchain: Toolchain, environment: dict[str, str]) -> None:
        started = time.monotonic()
        await asyncio.to_thread(self._make_room)
        shutil.rmtree(profile.folder, ignore_errors=True)
        profile.folder.mkdir()
        profile.header.write_text(profile.prelude)
        (profile.folder / "build.ninja").write_text(
            "ninja_required_version = 1.3\n"
            f"cxx = {ninja.shell_words(toolchain.argv)}\n"
            f"cflags = {profile.flags}\n"
            "rule pch\n"
            "  command = $cxx -MD -MF pch.d $cflags -x c++-header prelude.h -o $out\n"
            "build new.gch: pch prelude.h\n"
        )
        marker = Marker.take(profile.folder, [])
        finished = await self._runner.run(
            ["nice", "-n", "19", self._ninja, "-v"],
            cwd=profile.folder,
            environment={**environment, "TMPDIR": str(profile.folder)},
            timeout=self._timeout,
        )
        if finished.code != 0:
            raise RuntimeError("the time limit ran out" if finished.timed_out else finished.output[-2000:])
        paths = ninja.dependencies(profile.folder / "pch.d", profile.folder)
        record = await asyncio.to_thread(self._finish, profile, paths, toolchain, marker)
        profile.record, profile.state = record, "ready"
        log.info("profile %s ready after %.1f s: %s", profile.id[:12], time.monotonic() - started, profile.flags)

    def _finish(self, profile: Profile, paths: list[str], toolchain: Toolchain, marker: Marker) -> Record:
        closure = self._closures.record(
            paths,
            toolchain_roots=toolchain.roots,
            include_dirs=[*include_folders(profile.flags), *toolchain.include_folders],
            started=marker,
            ignore=[str(self.root)],
        )
        built = profile.folder / "new.gch"
        sha256 = digest.of_file(built)
        built.rename(profile.gch)
        (profile.folder / "prelude.h.gch.sum").write_text(sha256)
        record = Record(profile.flags, profile.prelude, sha256, _fingerprint(profile.gch), closure)
        data = msgspec.msgpack.encode(record)
        draft = profile.folder / "profile.new"
        draft.write_bytes(digest.of_bytes(data).encode() + data)
        draft.rename(profile.folder / "profile")
        return record

    def _make_room(self) -> None:
        """Evict the least used until another PCH of the largest size seen fits under the limit."""
        sizes = {p.id: p.record.stat[0] for p in self.by_id.values() if p.record is not None}
        room = max(sizes.values(), default=0)
        for profile in sorted((p for p in self.by_id.values() if p.id in sizes), key=lambda p: p.used):
            if sum(sizes.values()) + room <= self._size_limit:
                return
            del sizes[profile.id]
            self.by_id.pop(profile.id, None)
            shutil.rmtree(profile.folder, ignore_errors=True)

    def report(self) -> list[dict[str, Any]]:
        """One row per profile, for ``warmcc status``."""
        return [
            {
                "id": p.id[:12],
                "state": p.state,
                "flags": p.flags,
                "size": p.record.stat[0] if p.record else 0,
                "uses": p.uses,
                "reason": p.reason,
            }
            for p in self.by_id.values()
        ]

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

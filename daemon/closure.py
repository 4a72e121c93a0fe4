"""What a result was made of, and whether that is still so.

A closure lists every file that the compilers read. Files of the user are known by content, which is read again each
time; files of the toolchain by the header sets that they form (headers.py); and what must not appear, so that nothing
shadows them, by ``absent`` and ``guards`` (shadowing.py).

A closure is recorded after the build, from files that must not have changed since before it: each file's ctime has to
be older than the build's ``Marker``. What that cannot see:

- a header (not a source) on a network filesystem whose server's clock is behind this machine's by more than the time
  between the build's start and the change;
- a folder, moved in place of another one during the build, with all files in it older than the build;
- a store through a mapping that was opened before the build, while the kernel has not yet taken note of it.

A file dated in the future, or changed in the future by its own filesystem's clock, counts as changing: its result is
never kept, which is slow and right.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from warmcc import digest
from warmcc.daemon import headers
from warmcc.daemon.shadowing import Guard, Search, within

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SECOND = 1_000_000_000
_PATIENCE = 0.05  # seconds that a build waits for the clock to pass its sources; a tick is at most 10 ms


class ChangedDuringBuild(Exception):
    """A result that must not be stored: ``path`` changed or went away after the build began, or is nothing of which
    that can be told (no regular file, a folder that cannot be listed, a name that msgpack cannot hold)."""

    def __init__(self, path: str, reason: str = "changed during the build") -> None:
        super().__init__(f"{path} {reason}")
        self.path = path


class Closure(msgspec.Struct, frozen=True, omit_defaults=True):
    """``files``: the user's, path to SHA-256; ``headers``: digests of header sets; ``absent``: paths that must still
    not exist; ``guards``: names that must not appear in folders."""

    files: dict[str, str] = {}
    headers: list[str] = []
    absent: list[str] = []
    guards: list[Guard] = []

    @property
    def header_sets(self) -> set[str]:
        """All header sets without which it cannot be checked."""
        return {*self.headers, *(guard.headers for guard in self.guards if guard.headers)}

    @classmethod
    def union(cls, closures: Iterable[Closure]) -> Closure:
        """The closure of what was made of several results (an artifact of its units).

        Raises ChangedDuringBuild when they disagree on a file.
        """
        files: dict[str, str] = {}
        header_sets: set[str] = set()
        absent: set[str] = set()
        guards: list[Guard] = []
        for closure in closures:
            for path, expected in closure.files.items():
                if files.setdefault(path, expected) != expected:
                    raise ChangedDuringBuild(path)
            header_sets.update(closure.headers)
            absent.update(closure.absent)
            guards += [guard for guard in closure.guards if guard not in guards]
        return cls(files, sorted(header_sets), sorted(absent), guards)


class Marker(msgspec.Struct, frozen=True):
    """When a build began, in nanoseconds of the filesystem's own clock, and how its sources looked then."""

    ns: int
    sources: dict[str, tuple[int, int, int, int]] = {}

    @classmethod
    def take(cls, folder: Path | str, sources: Iterable[str] = ()) -> Marker:
        """Take the time from a new file in ``folder`` (the staging tree). Raises OSError.

        The kernel dates files with a clock that ticks every few milliseconds, so a source written just now may bear
        the very time of the marker, and would seem to have changed during the build: wait until the clock is past it.
        """
        looks = {path: _look(path) for path in sources}
        newest = max((_dated(found) for found in looks.values() if found is not None), default=0)
        deadline = time.monotonic() + _PATIENCE
        while (now := _clock(folder)) <= newest and time.monotonic() < deadline:
            time.sleep(0.001)
        return cls(now, {path: _identity(found) for path, found in looks.items() if found is not None})

    def precedes(self, path: str, found: os.stat_result) -> bool:
        """Whether the file has not been touched since."""
        return _dated(found) < self.ns and self.sources.get(path) in (None, _identity(found))


class Shelf(Protocol):
    """What closures need of the store."""

    @property
    def root(self) -> Path: ...
    def put_headers(self, payload: bytes) -> str: ...


class Closures:
    """Records closures and checks them. Thread-safe."""

    def __init__(self, store: Shelf, watch: headers.HeaderWatch) -> None:
        self._store = store
        self._watch = watch

    def record(
        self,
        paths: Iterable[str],
        toolchain_roots: Iterable[str],
        include_dirs: Sequence[str],
        started: Marker,
        *,
        cwd: str = "/",
        ignore: Iterable[str] = (),
    ) -> Closure:
        """The closure of a build that began at ``started`` and read ``paths``.

        ``include_dirs`` are the folders searched for headers, in their order, the compiler's own included. ``paths``
        and ``include_dirs`` may be relative to ``cwd``. What lies under ``ignore`` or in the store itself (staging
        trees) is left out. Raises ChangedDuringBuild, and OSError when the store cannot be written.
        """
        reading = _Reading(started, _Roots(toolchain_roots), _Roots([*ignore, str(self._store.root)]))
        for path in dict.fromkeys(os.path.join(cwd, path) for path in paths):
            reading.add(path)
        searched = [os.path.join(cwd, path) for path in include_dirs]
        search = Search([path for path in searched if not reading.ignored.hold(path)], reading.toolchain.hold)
        files, sets = reading.files(), reading.sets()
        try:
            shadows = search.shadows(files, reading.theirs)
        except OSError as error:
            raise ChangedDuringBuild(str(error.filename), f"cannot be listed ({error.strerror})") from error
        found = self._store.put_headers(headers.encode(shadows.toolchain_names, sets)) if sets else ""
        guards = [Guard(shadows.folders, sorted(shadows.user_names), found)] if shadows.folders else []
        return Closure(files, [found] if found else [], sorted(shadows.absent), guards)

    def holds(self, closure: Closure) -> bool:
        """Whether a build now would read just what it read then."""
        return self.broken(closure) is None

    def broken(self, closure: Closure) -> str | None:
        """Why a build now would read something else than it read then; None when it would not."""
        for path, expected in closure.files.items():
            if (now := _content(path)) != expected:
                return f"{path} {'is gone' if now is None else 'has changed'}"
        for path in closure.absent:
            if os.path.lexists(path):
                return f"{path} has appeared, which is searched first"
        if not all(self._watch.holds(found) for found in closure.headers):
            return "a header of the toolchain or of torch has changed"
        if not self._guarded(closure):
            return "a header has appeared in a folder that is searched first"
        return None

    def _guarded(self, closure: Closure) -> bool:
        listings: dict[str, list[str]] = {}
        for guard in closure.guards:
            names = self._watch.names(guard.headers) if guard.headers else frozenset[str]()
            if names is None or not guard.holds(names, listings):
                return False
        return True


class _Roots:
    """Folders, and what lies under them: by the path as it is written, or by where it leads."""

    def __init__(self, folders: Iterable[str]) -> None:
        self._written = [path.rstrip("/") or "/" for path in folders]
        self._real = [os.path.realpath(path) for path in self._written]
        self._known: dict[str, bool] = {}

    def hold(self, folder: str) -> bool:
        known = self._known.get(folder)
        if known is None:
            real = os.path.realpath(folder)
            known = any(within(real, root) for root in self._real) or (
                "/.." not in folder and any(within(folder, root) for root in self._written)
            )
            self._known[folder] = known
        return known


class _Reading:
    """The files that one build read, sorted into the user's and the toolchain's, and read again."""

    def __init__(self, started: Marker, toolchain: _Roots, ignored: _Roots) -> None:
        self.toolchain = toolchain
        self.ignored = ignored
        self.theirs: dict[str, list[str]] = {}
        self._started = started
        self._users: list[str] = []
        self._checked: set[str] = set()

    def add(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        if self.ignored.hold(folder):
            return
        if path != path.encode(errors="ignore").decode():
            raise ChangedDuringBuild(repr(path), "has a name that is not UTF-8, which msgpack cannot hold")
        if self.toolchain.hold(folder):
            self.theirs.setdefault(folder, []).append(name)
        else:
            self._users.append(path)

    def files(self) -> dict[str, str]:
        found = {}
        for path in self._users:
            self._check_links(path)
            try:
                if not stat.S_ISREG(os.stat(path).st_mode):
                    raise ChangedDuringBuild(path, "is no regular file")
                content = digest.of_file(path)
                self._check(path, os.stat(path))  # after it was read
            except OSError as error:
                raise ChangedDuringBuild(path) from error
            found[path] = content
        return found

    def sets(self) -> dict[str, list[headers.Entry]]:
        return {folder: self._entries(folder, names) for folder, names in self.theirs.items()}

    def _entries(self, folder: str, names: list[str]) -> list[headers.Entry]:
        self._check_links(folder)
        found, path = [], folder
        try:
            with headers.opened(folder) as descriptor:
                for name in names:
                    path = f"{folder}/{name}"
                    own, target = headers.look(descriptor, name)
                    self._check(path, own)
                    if target is not own:
                        self._check(path, target)
                    found.append(headers.Entry(name, target.st_size, target.st_mtime_ns))
        except OSError as error:
            raise ChangedDuringBuild(path) from error
        return found

    def _check(self, path: str, found: os.stat_result) -> None:
        if not self._started.precedes(path, found):
            raise ChangedDuringBuild(path)

    def _check_links(self, path: str) -> None:
        """No link on the way to ``path`` may have been set during the build."""
        while path not in self._checked and path != "/":
            self._checked.add(path)
            with contextlib.suppress(OSError):
                found = os.lstat(path)
                if stat.S_ISLNK(found.st_mode) and _dated(found) >= self._started.ns:
                    raise ChangedDuringBuild(path)
            path = os.path.dirname(path)


def _content(path: str) -> str | None:
    try:
        return digest.of_file(path) if stat.S_ISREG(os.stat(path).st_mode) else None
    except OSError:
        return None


def _look(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _identity(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _dated(found: os.stat_result) -> int:
    """The latest time at which the file can have been touched, by its own dates."""
    touched = found.st_ctime_ns
    if touched % _SECOND == 0:  # a filesystem that keeps whole seconds
        touched += _SECOND - 1
    return max(touched, found.st_mtime_ns)


def _clock(folder: Path | str) -> int:
    path = os.path.join(folder, f".marker-{secrets.token_hex(8)}")
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        return os.fstat(descriptor).st_ctime_ns
    finally:
        os.close(descriptor)
        os.unlink(path)

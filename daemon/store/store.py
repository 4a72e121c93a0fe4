"""Finding and publishing: the store as the rest of the daemon sees it."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from warmcc import digest
from warmcc.daemon.store import manifest, upkeep
from warmcc.daemon.store.manifest import Damaged, Kind, Result
from warmcc.daemon.store.pins import Pins
from warmcc.daemon.store.tree import BUSY, Tree
from warmcc.daemon.system.bounds import remove

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from warmcc.daemon.closure.closure import Closure


class Checks(Protocol):
    """What ``find`` needs of closure.Closures."""

    def holds(self, closure: Closure) -> bool: ...


class Store:
    """Results on disk. Thread-safe; one process at a time may write.

    ``size_limit`` is in bytes and applies when ``prune`` is called; what was handed out in the last
    ``grace`` seconds is in use. ``readable`` is for a store that all users of the machine read.
    Raises DaemonError when ``root`` cannot be written.
    """

    def __init__(
        self, root: Path, size_limit: int, *, grace: float = 600.0, readable: bool = False
    ) -> None:
        self._tree = Tree(root, readable=readable)
        self._pins = Pins(grace)
        self._size_limit = size_limit
        self._named: list[Callable[[], Iterable[str]]] = []

    @property
    def root(self) -> Path:
        return self._tree.root

    def resize(self, size_limit: int) -> None:
        """Another limit, from the next ``prune`` on."""
        self._size_limit = size_limit

    @property
    def quarantined(self) -> int:
        """How many damaged files were met since the start."""
        return self._tree.quarantined

    def staging(self) -> Path:
        """A new, empty folder to build in; ``discard`` or the next start removes it."""
        return self._tree.staging()

    def discard(self, path: Path) -> None:
        """Remove a staging folder. Raises ValueError for anything else."""
        self._tree.discard(path)

    def results(self, kind: Kind, key: str) -> list[Result]:
        """Everything known under a key, last used first.
        A damaged manifest is quarantined, and is nothing."""
        path = self._tree.result_path(kind, key)
        try:
            return _read(path, kind, key)
        except FileNotFoundError:
            return []
        except (Damaged, OSError):
            with self._tree.lock:
                return self._read_again(path, kind, key)

    def _read_again(self, path: str, kind: Kind, key: str) -> list[Result]:
        """With the lock held: it may have been replaced by a good one since."""
        try:
            return _read(path, kind, key)
        except FileNotFoundError:
            return []
        except (Damaged, OSError) as error:
            if getattr(error, "errno", None) not in BUSY:
                self._tree.quarantine(path)
            return []

    def find(self, kind: Kind, key: str, closures: Checks) -> tuple[Result, Path] | None:
        """The first result whose closure holds and whose file is intact.
        It counts as used now, and is safe from ``prune`` for the time of grace."""
        for place, result in enumerate(self.results(kind, key)):
            if not closures.holds(result.closure):
                continue
            path = self._tree.path_of(result)
            self._pins.hold(path)  # before it is looked at, so that it cannot go in between
            with contextlib.suppress(
                OSError
            ):  # it cannot be looked at now: a miss, and no reason to forget it
                if self._tree.still_intact(path, result.file, result.size):
                    self._mark_used(kind, key, result, first=place == 0)
                    return result, self.root / path
                self._drop(kind, key, result)
        return None

    def content(self, result: Result) -> bytes | None:
        """A result's file, checked by its digest; None where it is damaged or gone."""
        with contextlib.suppress(OSError):
            content = (self.root / self._tree.path_of(result)).read_bytes()
            return content if digest.of_bytes(content) == result.file else None
        return None

    def look_again(self, result: Result) -> None:
        """Read a result's file, so that ``find`` need not."""
        with contextlib.suppress(OSError):  # whoever finds it says so
            self._tree.still_intact(self._tree.path_of(result), result.file, result.size)

    def _mark_used(self, kind: Kind, key: str, result: Result, first: bool) -> None:
        path = self._tree.result_path(kind, key)
        with contextlib.suppress(OSError):  # it only costs its place in the order
            if first:
                os.utime(path)
                return
            with self._tree.lock:
                known = self.results(kind, key)
                if result in known:
                    others = [other for other in known if other != result]
                    self._tree.write(
                        path, manifest.encode(kind, key, [result, *others]), durable=False
                    )

    def _drop(self, kind: Kind, key: str, result: Result) -> None:
        """Forget a result whose file is damaged or gone."""
        path = self._tree.result_path(kind, key)
        file = self._tree.path_of(result)
        with self._tree.lock:
            state = self._tree.intact(file, result.file, result.size)
            if state:
                return  # published again meanwhile
            if state is False:
                self._tree.quarantine(file)
            with contextlib.suppress(OSError):
                left = [other for other in self.results(kind, key) if other != result]
                self._tree.write(path, manifest.encode(kind, key, left), durable=False)

    def publish(
        self, kind: Kind, key: str, file: Path, name: str, closure: Closure, meta: dict[str, Any]
    ) -> tuple[Result, Path]:
        """Copy a finished file into the store under ``key``; the result and where its file is now.

        An artifact has a ``name``, an object none (''). A result with an equal closure is replaced.
        Raises OSError (disk full, no permission; nothing is visible then), TypeError for a ``meta``
        that is not plain, ValueError for a name or key that is none.

        An artifact that its caller was told of survives a power cut. Nothing waits for the disk for
        an object: it is made again from its source, and one that is damaged is noticed by its
        digest.
        """
        self._tree.file_path("0" * 64, name)
        target = self._tree.result_path(kind, key)
        durable = kind == "artifact"
        copy, content, size = self._tree.copy_in(file, 0o755 if name else 0o644, durable)
        result = Result(content, name, size, closure, time.time(), meta)
        path = self._tree.path_of(result)
        try:
            with self._tree.lock:
                known = [other for other in self.results(kind, key) if other.closure != closure]
                data = manifest.encode(kind, key, [result, *known])
                for needed in (path, *map(self._tree.headers_path, closure.headers)):
                    self._pins.hold(needed)
                new = self._put(copy, path, content, size, durable)
                try:
                    self._tree.write(target, data, durable)
                except BaseException:
                    if new:
                        self._tree.remove(path)
                    raise
        finally:
            # Later, where it cannot be removed now: that does no harm to the result
            remove(Path(copy))
        return result, self.root / path

    def also(self, kind: Kind, key: str, result: Result, meta: dict[str, Any]) -> None:
        """Have a result's file found under another key, too, with another ``meta``.
        Raises OSError; FileNotFoundError when the file is gone meanwhile, or damaged."""
        target = self._tree.result_path(kind, key)
        other = msgspec.structs.replace(result, created=time.time(), meta=meta)
        path = self._tree.path_of(result)
        with self._tree.lock:
            for needed in (path, *map(self._tree.headers_path, result.closure.headers)):
                self._pins.hold(needed)
            if not self._tree.still_intact(path, result.file, result.size):
                raise FileNotFoundError(path)
            known = [one for one in self.results(kind, key) if one.closure != result.closure]
            self._tree.write(target, manifest.encode(kind, key, [other, *known]), durable=False)

    def _put(self, copy: str, path: str, content: str, size: int, durable: bool) -> bool:
        """Rename a staged file to its place, unless it exists; return whether it was new."""
        state = self._tree.intact(path, content, size)
        if state:
            return False
        if state is False:
            self._tree.quarantine(path)
        self._tree.place(copy, path, durable)
        return True

    def put_headers(self, payload: bytes) -> str:
        """Keep a header set; its digest. Raises OSError."""
        name = digest.of_bytes(payload)
        path = self._tree.headers_path(name)
        with self._tree.lock:
            self._pins.hold(path)
            state = self._tree.intact(path, name, len(payload))
            if state is False:
                self._tree.quarantine(path)
            if not state:
                self._tree.write(path, payload)
        return name

    def keep_headers(self, named: Callable[[], Iterable[str]]) -> None:
        """Have ``prune`` keep these header sets as well: closures beside the store use them."""
        self._named.append(named)

    def get_headers(self, name: str) -> bytes | None:
        """The payload of a header set, checked; None when there is none (any more).

        Raises OSError when it is not the file's fault: too many open files, no memory.
        """
        path = self._tree.headers_path(name)
        with contextlib.suppress(OSError):
            with open(path, "rb") as file:
                payload = file.read()
            if digest.of_bytes(payload) == name:
                return payload
        with self._tree.lock:
            if self._tree.intact(path, name) is False:
                self._tree.quarantine(path)
        return None

    def usage(self) -> dict[str, Any]:
        """Sizes in bytes, kept up to date.
        ``bytes`` in all, ``quarantined`` since the start, and ``count`` and ``bytes`` of
        ``results``, ``objects``, ``artifacts``, ``headers`` and ``quarantine``."""
        return self._tree.usage()

    def entries(self) -> list[dict[str, Any]]:
        """One record per result, last used first.
        ``kind``, ``key``, ``name`` ('' for an object), ``file``, ``size`` in bytes,
        ``created`` and ``used`` in seconds since the epoch."""
        return upkeep.entries(self._tree)

    def verify(self) -> dict[str, int]:
        """Read and check every file.
        ``checked`` = ``ok`` + ``damaged``; damaged ones are quarantined, and ``removed``
        counts the results that went because a file of theirs is damaged or gone."""
        return upkeep.verify(self._tree)

    def prune(self, limit: int | None = None) -> dict[str, int]:
        """Bring the store down to ``limit`` bytes (None: the size limit).
        Results unused for longest go first, with the files that no other result needs.
        Nothing goes that is pinned or mapped by a running process.

        ``bytes`` left, ``freed``; ``results`` and ``files`` removed.
        """
        named = frozenset(name for give in self._named for name in give())
        return upkeep.prune(
            self._tree, self._pins, self._size_limit if limit is None else limit, named
        )

    def keep_to_limit(self) -> bool:
        """Prune to nine tenths of the size limit once it is exceeded.
        A pass reads every manifest, and must be rare. Returns whether the limit is kept
        now; what is in use may exceed it."""
        if self._tree.total() > self._size_limit:
            self.prune(self._size_limit * 9 // 10)
        return self._tree.total() <= self._size_limit

    def withdraw(self, makers: frozenset[str]) -> int:
        """Forget every result that has one of these among ``makers`` of its ``meta``; how many.
        The files that only they needed go to quarantine, as evidence."""
        return upkeep.withdraw(self._tree, makers)

    def clear(self) -> dict[str, int]:
        """Remove everything that is not in use. Answers as ``prune``."""
        return self.prune(0)


def _read(path: str, kind: Kind, key: str) -> list[Result]:
    with open(path, "rb") as file:
        return manifest.decode(kind, key, file.read())

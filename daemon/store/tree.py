"""The store's folders: names, staging, atomic writes, and the sizes of it all."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from warmcc import digest
from warmcc.daemon.closure.marker import Marker
from warmcc.daemon.store.layout import Layout
from warmcc.daemon.system.bounds import remove
from warmcc.daemon.system.runner import start_of
from warmcc.errors import DaemonError
from warmcc.paths import private_dir

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmcc.daemon.store.pins import Pins

COUNTED = ("results", "objects", "artifacts", "headers", "quarantine")
_BLOCK = 1 << 20
_REMEMBERED = 4096  # files

BUSY = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # what says nothing about a file


class Tree(Layout):
    """Files of one store; ``readable`` by all users, or its owner's alone.

    ``lock`` is held by whoever changes what is published. Reading takes no lock.
    """

    def __init__(self, root: Path, *, readable: bool = False) -> None:
        super().__init__(root)
        self._mode = 0o755 if readable else 0o700
        self.lock = threading.RLock()
        self.quarantined = 0
        self._counts_lock = threading.Lock()
        self._counts: dict[str, list[int]] = {}
        self._start = start_of(os.getpid())
        # → the digest that it had, and how it looked
        self._read: dict[str, tuple[str, tuple[int, ...]]] = {}
        try:
            self._ensure()
            os.rmdir(self.staging())
        except OSError as error:
            raise DaemonError(
                f"the store {root} cannot be written: {error.strerror or error}\n"
                "Set WARMCC_CACHE_DIR to a writable folder that you own."
            ) from error
        self._remove_abandoned()
        self.recount()

    def files(self, folder: str) -> Iterator[os.DirEntry[str]]:
        """Every file below one of the store's folders; what goes away meanwhile is passed over."""
        waiting = [f"{self.root}/{folder}"]
        while waiting:
            with contextlib.suppress(FileNotFoundError), os.scandir(waiting.pop()) as found:
                for entry in found:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        yield entry

    # Staging

    def staging(self) -> Path:
        """A new folder for a build. Raises OSError."""
        path = Path(self._temporary())
        path.mkdir(mode=0o700)
        return path

    def discard(self, path: Path) -> None:
        if path.parent != self.root / "staging":
            raise ValueError(f"not a staging folder of this store: {path}")
        remove(path)

    def _temporary(self) -> str:
        self._ensure()
        return f"{self.root}/staging/{os.getpid()}-{self._start}-{secrets.token_hex(8)}"

    def _ensure(self) -> None:
        """The root and its folders, which are made again if they were removed meanwhile."""
        if self._mode == 0o700:
            private_dir(self.root)
        for folder in (*COUNTED, "staging"):
            self._make(f"{self.root}/{folder}")

    def _make(self, folder: str, durable: bool = False) -> None:
        """A folder of the store with those above it.
        The umask is the daemon's, which leaves nothing to others."""
        if not os.path.isdir(folder):
            above = os.path.dirname(folder)
            if folder != str(self.root):
                self._make(above, durable)
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, 0o700)
                os.chmod(folder, self._mode)
                if durable:
                    _flush(above)

    def _remove_abandoned(self) -> None:
        """Staging folders whose process is gone. By its start time too: process ids come back."""
        for path in (self.root / "staging").iterdir():
            pid, _, rest = path.name.partition("-")
            start = rest.partition("-")[0]
            if pid.isdecimal() and start == start_of(int(pid)) != "":
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    # Writing

    @contextlib.contextmanager
    def written(self, mode: int = 0o644, durable: bool = True) -> Iterator[tuple[str, BinaryIO]]:
        """A file in staging, flushed when the block ends, and gone when it ends in an error."""
        path = self._temporary()
        try:
            with open(
                os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb"
            ) as file:
                yield path, file
                file.flush()
                os.fchmod(file.fileno(), mode)
                if durable:
                    os.fsync(file.fileno())
        except BaseException:
            remove(Path(path))
            raise

    def copy_in(self, source: Path, mode: int, durable: bool = True) -> tuple[str, str, int]:
        """Copy a file into staging: where it is, the digest of what was written, its size.
        Raises OSError.

        Always a copy, never a rename or a link: somebody may hold the original open, or link to it
        (ccache does).
        """
        state, size = hashlib.sha256(), 0
        with open(source, "rb") as original:
            if not stat.S_ISREG(os.fstat(original.fileno()).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", str(source))
            with self.written(mode, durable) as (path, copy):
                while block := original.read(_BLOCK):
                    state.update(block)
                    copy.write(block)
                    size += len(block)
        return path, state.hexdigest(), size

    def write(self, target: str, data: bytes, durable: bool = True) -> None:
        """Put ``data`` at ``target`` in one step. Hold the lock."""
        with self.written(durable=durable) as (path, file):
            file.write(data)
        self.place(path, target, durable)

    def place(self, path: str, target: str, durable: bool = True) -> None:
        """Rename from staging to ``target``. Hold the lock. On an error the staging file is gone.

        What is ``durable`` is there after a power cut when anything that was placed later is.
        """
        try:
            self._make(os.path.dirname(target), durable)
            before = self.size(target)
            after = os.lstat(path).st_size
            os.rename(path, target)
        except OSError:
            remove(Path(path))
            raise
        self._count(target, before is None, after - (before or 0))
        if durable:
            _flush(os.path.dirname(target))

    def remove(self, path: str, pins: Pins | None = None) -> int:
        """Remove a file, unless it is pinned; how many bytes that freed.
        Hold the lock. Raises OSError."""
        size = self.size(path)
        if size is None:
            return 0
        if pins is None:
            os.unlink(path)
        elif not pins.remove_unless_held(path):
            return 0
        self._count(path, -1, -size)
        self._tidy(path)
        return size

    # Reading

    @staticmethod
    def size(path: str) -> int | None:
        try:
            return os.lstat(path).st_size
        except FileNotFoundError:
            return None

    @staticmethod
    def intact(path: str, expected: str, size: int | None = None) -> bool | None:
        """Whether a file has this content (and size); what cannot be read has not.
        None when there is no file.

        Raises OSError when it is not the file's fault: too many open files, no memory.
        """
        try:
            found = os.lstat(path)
            if not stat.S_ISREG(found.st_mode) or size not in (None, found.st_size):
                return False
            return digest.of_file(path) == expected
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in BUSY:
                raise
            return False

    def still_intact(self, path: str, expected: str, size: int) -> bool | None:
        """As ``intact``, without reading a file that has not changed since it was last read."""
        found = _stat(path)
        if found is not None and self._read.get(path) == (expected, _look(found)):
            return True
        began = self._marker(path)
        state = self.intact(path, expected, size)
        # A change that came after it was read must not bear the date of the one before: the file is
        # known by its dates from when the filesystem's own clock has passed them.
        if state and found is not None and began is not None and began.precedes(path, found):
            if len(self._read) >= _REMEMBERED:
                self._read.clear()
            self._read[path] = (expected, _look(found))
        return state

    def _marker(self, path: str) -> Marker | None:
        """A time after a file's dates, by the clock of its filesystem; waits a tick if need be."""
        try:
            return Marker.take(self.root / "staging", (path,))
        except OSError:  # the disk is full: the file is read again the next time
            return None

    def quarantine(self, path: str) -> None:
        """Take a damaged file out of the way.
        Hold the lock. What cannot be moved stays, and stays a miss."""
        self.quarantined += 1
        name = os.path.relpath(path, self.root).replace("/", "-")[:200]
        target = f"{self.root}/quarantine/{name}-{secrets.token_hex(4)}"
        with contextlib.suppress(OSError):
            size = os.lstat(path).st_size
            os.rename(path, target)
            self._count(path, -1, -size)
            self._count(target, 1, size)
            os.utime(target, follow_symlinks=False)
            self._tidy(path)

    def _tidy(self, path: str) -> None:
        if path.startswith(f"{self.root}/artifacts/"):
            with contextlib.suppress(OSError):  # another name for the same content is in it
                os.rmdir(os.path.dirname(path))

    # Weighing

    def usage(self) -> dict[str, int | dict[str, int]]:
        with self._counts_lock:
            counts = {
                folder: {"count": count, "bytes": size}
                for folder, (count, size) in self._counts.items()
            }
        return {
            "bytes": sum(count["bytes"] for count in counts.values()),
            "quarantined": self.quarantined,
            **counts,
        }

    def total(self) -> int:
        with self._counts_lock:
            return sum(size for _, size in self._counts.values())

    def recount(self) -> None:
        """Recount, in case files were removed by another process."""
        with self.lock:
            counts = {folder: [0, 0] for folder in COUNTED}
            for folder, count in counts.items():
                for entry in self.files(folder):
                    with contextlib.suppress(FileNotFoundError):
                        count[1] += entry.stat(follow_symlinks=False).st_size
                        count[0] += 1
            with self._counts_lock:
                self._counts = counts

    def _count(self, path: str, files: int, size: int) -> None:
        folder = path[len(str(self.root)) + 1 :].partition("/")[0]
        with self._counts_lock:
            self._counts[folder][0] += files
            self._counts[folder][1] += size


def _flush(folder: str) -> None:
    """Have the names in a folder on the disk.
    Where that fails they are there all the same, until the power goes."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _look(found: os.stat_result) -> tuple[int, ...]:
    """What changes when a file is written or replaced."""
    return (
        found.st_dev, found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns,
        found.st_ctime_ns,
    )  # fmt: skip

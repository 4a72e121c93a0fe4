"""The draft of a package: the folder beside it in which a run keeps what it has, until it is whole.

A killed run leaves it, and the next one goes on from it. One run at a time may have it, which
``flock`` ensures.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from warmcc.client.prebuild.results import Results
from warmcc.errors import PrebuildError

_LOCK = "lock"


class Draft:
    """``folder`` has the results of the jobs so far."""

    def __init__(self, output: Path, name: str) -> None:
        self.folder = output / f".{name}.draft"
        self.results = Results(str(self.folder))

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Have it alone, for the length of the context. Raises PrebuildError, OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / _LOCK, "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PrebuildError(
                    f"{self.folder} is in use by another run; wait for it, or choose another output"
                ) from None
            if not _is_same(lock.fileno(), self.folder / _LOCK):  # the other run has just finished
                raise PrebuildError(f"{self.folder} was removed by another run; try again")
            try:
                yield
            finally:
                self._remove_if_empty()

    def _remove_if_empty(self) -> None:
        with contextlib.suppress(OSError):
            if [one.name for one in self.folder.iterdir()] == [_LOCK]:
                self.remove()

    def remove(self) -> None:
        """The package is whole. Removes the rest, the lock last; a work unit that was given up may
        still write there."""
        for path in sorted(self.folder.iterdir(), key=lambda one: one.name == _LOCK):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
        with contextlib.suppress(OSError):
            self.folder.rmdir()


def _is_same(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


@contextlib.contextmanager
def replacing(target: Path, beside: Path) -> Iterator[Path]:
    """A new folder to be filled, which then takes the target's place. ``beside`` is a folder on the
    same file system. Raises OSError."""
    made, old = beside / "package", beside / "replaced"
    for path in (made, old):
        shutil.rmtree(path, ignore_errors=True)
    made.mkdir()
    yield made
    with contextlib.suppress(FileNotFoundError):
        os.rename(target, old)
    try:
        os.rename(made, target)
    except OSError:
        with contextlib.suppress(OSError):
            os.rename(old, target)
        raise
    shutil.rmtree(old, ignore_errors=True)

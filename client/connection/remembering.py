"""Answers that this process has had before, given again while they are known to be true.

The daemon says of a hit what its page showed while it was checked (``Watching`` in
``protocol.py``): while that stays as it was, no toolchain, header, or folder that the hit depends
on has changed. The rest is looked at here, each time: the arguments, the environment and the
working directory are the key; the user's sources are read, as stock reads them, and headers that
the daemon cannot watch; and the artifact must be the file that it was. What is not certain is asked
of the daemon.

Answers belong to a session, and so to one thread of one process, and go with the connection. After
a minute the daemon is asked in any case: it looks at what inotify cannot see from time to time, and
keeps artifacts that are asked for.
"""

from __future__ import annotations

import marshal
import mmap
import os
import select
import struct
import sys
import time
from typing import Any, NamedTuple

from warmcc.client.connection.wire import Connection
from warmcc.contents import Contents
from warmcc.protocol import Built, Watching, mount_namespace
from warmcc.request import KEYED_ENVIRONMENT, PASSED_ENVIRONMENT, Request

_SECONDS = 60.0
_MOST = 256  # answers of one session,
_LARGEST = 1 << 20  # whose sources are no longer than this
_OURS = (
    "RUNTIME_DIR", "TIMEOUT", "DISABLE", "FALLBACK", "AUTOSTART", "OFFLINE", "BUNDLES", "RECORD",
)  # fmt: skip
_VARIABLES = [
    os.fsencode(name)
    for name in (*KEYED_ENVIRONMENT, *PASSED_ENVIRONMENT, *(f"WARMCC_{name}" for name in _OURS))
]
_WORD = struct.Struct("@Q")

Look = tuple[int, int, int, int, int]


class Remembered(NamedTuple):
    """An answer, with its request, and the folder for copies as the caller wrote it."""

    request: Request
    answer: Built
    directory: str | None
    files: dict[str, str]  # to be looked at
    artifact: Look
    until: float


class Memory:
    """The answers of one session.
    ``page`` and ``waiting`` are the descriptors that came on its ``connection``, which closes
    them; ``mounts`` is the session's. Raises OSError."""

    def __init__(self, page: int, waiting: int, connection: Connection, mounts: int) -> None:
        self._known: dict[Any, Remembered] = {}
        self._contents = Contents()
        self._page = mmap.mmap(page, mmap.PAGESIZE, prot=mmap.PROT_READ)
        self._connection, self._inode = connection, os.fstat(connection.fileno()).st_ino
        self._mounts = mounts
        self._poll = select.poll()
        for descriptor, events in (
            (waiting, select.POLLIN),
            (connection.fileno(), select.POLLIN),
            (mounts, 0),
        ):
            self._poll.register(descriptor, events)
        self._looking = False

    def close(self) -> None:
        self._known.clear()
        self._page.close()

    def recall(self, key: Any) -> Remembered | None:
        """The answer to an equal request, if it is known to be true now."""
        found = self._known.get(key)
        if found is None or not self._shows(found.answer.page):
            return None
        with _Suppressed():
            if (
                time.monotonic() < found.until
                and look(found.answer.path) == found.artifact
                and all(self._contents.are(path, known) for path, known in found.files.items())
            ):
                return found
        self._known.pop(key, None)
        return None

    def _shows(self, count: int) -> bool:
        """Whether the daemon's page shows what it showed, and nothing waits to be read.
        In this order, or a change that is read in between would be missed
        (daemon/system/page.py)."""
        if not self._is_open():
            return False
        if (
            self._looking
        ):  # a signal's handler cut the last look short, and with it what is reported once
            self._known.clear()
        self._looking = True
        reported = self._poll.poll(0)
        if any(descriptor == self._mounts for descriptor, _ in reported):  # it is reported once
            self._known.clear()
        self._looking = False
        return not reported and bool(_WORD.unpack_from(self._page)[0] == count << 1)

    def _is_open(self) -> bool:
        """Whether the descriptors are still those that the daemon sent.
        A connection closes itself when it is cut, and some programs close all descriptors."""
        try:
            return os.fstat(self._connection.fileno()).st_ino == self._inode
        except OSError:
            return False

    def keep(self, key: Any, request: Request, answer: Built, directory: str | None) -> None:
        """Remember a hit, if its daemon says that one may."""
        size = sum(map(len, (*request.cpp_sources, *request.cuda_sources)))
        if answer.page and not request.is_standalone and size <= _LARGEST:
            while len(self._known) >= _MOST:
                del self._known[next(iter(self._known))]
            with _Suppressed():
                watched = set(answer.watched)
                files = {path: known for path, known in answer.files.items() if path not in watched}
                until = time.monotonic() + _SECONDS
                self._known[key] = Remembered(
                    request, answer, directory, files, look(answer.path), until
                )


class _Suppressed:
    """Of what the system refuses, nothing is remembered.
    A TimeoutError without a number is raised by a signal's handler, and is the caller's."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        return isinstance(error, OSError) and error.errno is not None


def mounts() -> int | None:
    """A descriptor on which changes of the mounts are reported from now on."""
    with _Suppressed():
        return os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
    return None


def memory(watching: Watching, connection: Connection | None, mounts: int | None) -> Memory | None:
    """What a daemon's descriptors make possible; nothing with one that sees other mounts.
    ``mounts`` was opened before the daemon looked at anything."""
    here = mount_namespace()
    if connection is None or mounts is None or not here or watching.namespace != here:
        return None
    if len(connection.descriptors) == 2:
        page, waiting = connection.descriptors
        with _Suppressed():
            return Memory(page, waiting, connection, mounts)
    return None


def look(path: str) -> Look:
    """What changes when a file is written or replaced. Raises OSError."""
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def key(call: str, given: dict[str, Any]) -> Any:
    """What makes two calls equal: arguments, variables, the working directory, and what runs here.
    None when an argument is of a kind that does not compare by its value."""
    # The bytes themselves: os.environ's own look-ups take ten times
    variables = getattr(os.environ, "_data", None)
    if not isinstance(variables, dict) or (arguments := _frozen(given)) is None:
        return None
    torch = sys.modules.get("torch")
    with _Suppressed():
        return (
            call, arguments, tuple(map(variables.get, _VARIABLES)), os.getcwd(), sys.executable,
            torch, getattr(torch, "__version__", None),
        )  # fmt: skip
    return None


_KINDS = frozenset([str, bool, type(None), list, tuple, dict])


def _frozen(given: dict[str, Any]) -> bytes | None:
    """The values of arguments and their types as one text, None when some have no such text.
    ``marshal`` knows Python's own types alone, and each by another letter; but it takes whatever
    has a buffer for bytes, and so these must be where a request refuses bytes."""
    if not _KINDS.issuperset(map(type, given.values())):
        return None
    functions = given.get("functions")
    if type(functions) is dict and not all(type(text) is str for text in functions.values()):
        return None
    try:
        return marshal.dumps(tuple(given.values()), 0)
    except ValueError:
        return None

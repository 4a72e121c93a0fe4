"""Header sets by content: what two machines with the same headers have in common.

The store knows the toolchain's headers by size and time (``closure/header_sets.py``), and each
machine has other times. In a remote store a set has the SHA-256 of each header instead. Its payload
is deterministic msgpack, so that equal sets have one digest:

    [1, [name, ...], {folder: [[name, size, sha256], ...]}, {folder: [name, ...]}]

Taking one compares each file here with it, and gives a set with this machine's times.
"""

from __future__ import annotations

import os
import stat
from typing import TypeVar

import msgspec

from warmcc import digest
from warmcc.daemon.closure import header_sets
from warmcc.daemon.closure.header_sets import Entry
from warmcc.daemon.remote.places import Trouble
from warmcc.daemon.store import Store
from warmcc.daemon.toolchain.known_contents import KnownContents

VERSION = 1
LIMIT = 64 << 20  # bytes
_REMEMBERED = 256  # sets
T = TypeVar("T")


class _Set(msgspec.Struct, frozen=True, array_like=True):
    version: int
    names: list[str]
    folders: dict[str, list[tuple[str, int, bytes]]]
    absent: dict[str, list[str]]


_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode = msgspec.msgpack.Decoder(_Set).decode


class HeaderContents:
    """Of one store. ``known`` are contents of headers. Blocking; thread-safe."""

    def __init__(self, store: Store, known: KnownContents) -> None:
        self._store = store
        self._known = known
        self._given: dict[str, tuple[str, bytes]] = {}  # by the digest of the store's set
        self._taken: dict[str, str] = {}  # the store's set by the digest of the remote one

    def given(self, name: str) -> tuple[str, bytes] | None:
        """The remote set of one in the store: its digest and payload; None where a header cannot
        be read. The caller checks, before and after, that the store's set holds."""
        if (found := self._given.get(name)) is not None:
            return found
        headers = header_sets.decoded(self._store.get_headers(name))
        if headers is None:
            return None
        try:
            folders = {
                folder: [
                    (entry, size, bytes.fromhex(self._known.digest(f"{folder}/{entry}")))
                    for entry, size, _ in entries
                ]
                for folder, entries in headers.folders.items()
            }
        except OSError:
            return None
        payload = _encode(_Set(VERSION, headers.names, folders, headers.absent))
        found = digest.of_bytes(payload), payload
        _keep(self._given, name, found)
        return found

    def known_as(self, name: str) -> str | None:
        """The store's set that a remote one was found to be; it may not hold any more."""
        return self._taken.get(name)

    def take(self, name: str, payload: bytes) -> str | None:
        """Put a remote set into the store, with this machine's times; its digest there, None where
        a header differs here. Raises Trouble for a damaged one, OSError."""
        try:
            found = _decode(payload)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise Trouble("damaged", f"a header set is damaged: {error}") from None
        if found.version != VERSION:
            return None
        folders: dict[str, list[Entry]] = {}
        for folder, entries in found.folders.items():
            folders[folder] = []
            for entry, size, content in entries:
                times = self._time_of(f"{folder}/{entry}", size, content.hex())
                if times is None:
                    return None
                folders[folder].append(Entry(entry, size, times))
        taken = self._store.put_headers(header_sets.encode(found.names, folders, found.absent))
        _keep(self._taken, name, taken)
        return taken

    def _time_of(self, path: str, size: int, content: str) -> int | None:
        """The mtime of a file that has this content. It is taken before the content is read, so
        that a set with a file that changes meanwhile does not hold."""
        try:
            found = os.stat(path)
            is_file = stat.S_ISREG(found.st_mode) and found.st_size == size
            return found.st_mtime_ns if is_file and self._known.digest(path) == content else None
        except (OSError, ValueError):
            return None


def _keep(kept: dict[str, T], name: str, value: T) -> None:
    while len(kept) >= _REMEMBERED:
        del kept[next(iter(kept))]
    kept[name] = value

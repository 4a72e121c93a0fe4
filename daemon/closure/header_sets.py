"""Toolchain headers: thousands of files that rarely change, known by their size and time.

A *header set* is what a compile read of the toolchain: per folder, name, size and mtime (ns) of
each file; and what it looked for there in vain. Its payload is deterministic msgpack, so that equal
sets have one digest and are stored once:

    [2, [name, ...], {folder: [[name, size, mtime_ns], ...]}, {folder: [name, ...]}]

The names in front are the first components by which the headers are found under the include
directories (``torch``, ``vector``): a file of that name in a folder searched earlier would be read
instead (see shadowing.py). Those at the end must not appear in the folder.

Whether a set holds is told in a millisecond (header_watch.py).
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

VERSION = 2


class Entry(NamedTuple):
    """One header: its name in its folder, bytes, nanoseconds."""

    name: str
    size: int
    mtime_ns: int


class HeaderSet(msgspec.Struct, frozen=True, array_like=True):
    version: int
    names: list[str]
    folders: dict[str, list[tuple[str, int, int]]]
    absent: dict[str, list[str]]


_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode = msgspec.msgpack.Decoder(HeaderSet).decode


def encode(
    names: Iterable[str],
    folders: Mapping[str, Iterable[Entry]],
    absent: Mapping[str, Iterable[str]] | None = None,
) -> bytes:
    """The payload of a header set; equal sets give equal bytes, in whatever order they come."""
    return _encode(
        HeaderSet(
            VERSION,
            sorted(set(names)),
            {path: sorted(set(found)) for path, found in folders.items()},
            {path: sorted(set(missing)) for path, missing in (absent or {}).items()},
        )
    )


def decoded(payload: bytes | None) -> HeaderSet | None:
    """The header set of a payload; None for what is none, or one of another version."""
    try:
        found = None if payload is None else _decode(payload)
    except msgspec.DecodeError:
        return None
    return found if found is not None and found.version == VERSION else None


def look(descriptor: int, name: str) -> tuple[os.stat_result, os.stat_result]:
    """A file in an opened folder: itself, and what it leads to (the same unless it is a link).
    Raises OSError."""
    own = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    return own, os.stat(name, dir_fd=descriptor) if stat.S_ISLNK(own.st_mode) else own

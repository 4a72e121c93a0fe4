"""What a shared object needs, read from the file itself: libraries, and versions of symbols."""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from warmcc.errors import BundleError

MACHINES = {62: "x86_64", 183: "aarch64"}
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_PAIR = struct.Struct("<qQ")
_NEED, _NEED_AUX = struct.Struct("<HHIII"), struct.Struct("<IHHII")
_MOST = 4096  # libraries of one file
_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRTAB, _RPATH, _RUNPATH = 1, 5, 15, 29
_VERNEED, _VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
_VERSION = re.compile(r"(GLIBC|GLIBCXX|CXXABI)_(\d+(?:\.\d+)*)")


class Object(NamedTuple):
    """``libraries`` as DT_NEEDED has them, ``search`` its RUNPATH, ``symbols`` the highest version
    of each library's symbols."""

    machine: str
    libraries: list[str]
    search: str
    symbols: dict[str, str]


def read(path: str) -> Object:
    """Read a 64-bit little-endian ELF file. Raises BundleError for another one, OSError."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        return _read(data)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise BundleError(f"{path} is not a shared object that can be packed: {error}") from None


def _read(data: bytes) -> Object:
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("it is not a 64-bit ELF file")
    _, _, machine, _, _, segments, _, _, _, size, count, *_ = _HEADER.unpack_from(data)
    found = [_SEGMENT.unpack_from(data, segments + at * size) for at in range(count)]
    loads = [(one[3], one[2], one[5]) for one in found if one[0] == _LOAD]

    def offset(address: int) -> int:
        start: int
        at: int
        for start, at, length in loads:
            if start <= address < start + length:
                return address - start + at
        raise ValueError("an address is in no segment")

    tags: list[tuple[int, int]] = []
    for kind, _, at, _, _, length, _, _ in found:
        if kind == _DYNAMIC:
            tags += _PAIR.iter_unpack(data[at : at + length // 16 * 16])
    known = dict(reversed(tags))
    if _STRTAB not in known:
        raise ValueError("it has no dynamic section")
    strings = offset(known[_STRTAB])

    def text(at: int) -> str:
        return data[strings + at : data.index(b"\0", strings + at)].decode("utf-8", "replace")

    symbols: dict[str, str] = {}
    if _VERNEED in known:
        for name in _versions(data, offset(known[_VERNEED]), known.get(_VERNEEDNUM, 0)):
            if version := _VERSION.fullmatch(text(name)):
                symbols[version[1]] = max(symbols.get(version[1], "0"), version[2], key=as_numbers)
    search = next((text(value) for tag, value in tags if tag in (_RUNPATH, _RPATH)), "")
    libraries = [text(value) for tag, value in tags if tag == _NEEDED]
    return Object(MACHINES.get(machine, str(machine)), libraries, search, symbols)


def _versions(data: bytes, at: int, count: int) -> list[int]:
    """Where the names of the versions are that it needs."""
    found = []
    for _ in range(min(count, _MOST)):
        _, auxiliaries, _, first, following = _NEED.unpack_from(data, at)
        place = at + first
        for _ in range(auxiliaries):
            _, _, _, name, step = _NEED_AUX.unpack_from(data, place)
            found.append(name)
            place += step
        at += following
    return found


def as_numbers(version: str) -> tuple[int, ...]:
    """A version to compare.

    >>> as_numbers("2.34") > as_numbers("2.4")
    True
    """
    return tuple(map(int, version.split(".")))

"""Write an object for another folder: the strings in which it names one are replaced.

An object of g++ names folders in strings alone: what ``__FILE__`` gave, and the files of ``-g``. A
longer or shorter string cannot stand in an old one's place, so it is put behind the others of its
section, and whatever refers to the old one is led there. The rest of the object stays as it is, to
the byte; of the old string, zeros are left.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_REFERENCE = struct.Struct("<QQq")
_BEGINS = b"\x7fELF\x02\x01"  # 64 bits, the lowest byte first
_RELOCATABLE, _X86_64 = 1, 62
_SYMBOLS, _STRINGS, _REFERENCES, _NOTHING, _MANY_SECTIONS = 2, 3, 4, 8, 18  # types of sections
_WRITTEN, _LOADED, _RUN, _MERGED_STRINGS, _COMPRESSED = 1, 2, 4, 0x30, 0x800  # flags of sections
_DATA = 1  # type of a section
# What nvcc makes of its source's path, in names that have to be another module's in another folder
_MODULES_NAME = re.compile(rb"_(?:GLOBAL__N_|INTERNAL)_[0-9a-f]{8}_\d+_|_cu_[0-9a-f]{8}")
_NO_TYPE, _A_SECTION = 0, 3  # types of symbols
_ABSOLUTE = frozenset((1, 10, 11))  # R_X86_64_64, _32, _32S: to the place plus the addend
_RELATIVE = frozenset((2, 4, 9, 41, 42))  # less the bytes up to the next instruction


class CannotMove(Exception):
    """The object may depend on its folder by more than strings; says why."""


class _Section(NamedTuple):
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


def moved(content: bytes, old: str, new: str) -> bytes:
    """An object of x86-64 in which all names below the folder ``old`` are below ``new``.
    Raises CannotMove."""
    if any(
        _MODULES_NAME.match(content, place)
        for word in (b"_GLOBAL__N__", b"_INTERNAL_", b"_cu_")
        for place in places_of(content, word)
    ):
        raise CannotMove("its symbols have the module's name in them")
    try:
        return _Object(content, old.encode(), new.encode()).written()
    except struct.error as error:
        raise CannotMove("it is cut off") from error


class _Symbol(NamedTuple):
    """One in a section that changes: its type, what moves there, and its value."""

    type: int
    moves: _Moves
    value: int


class _Object:
    def __init__(self, content: bytes, old: bytes, new: bytes) -> None:
        self._content = bytearray(content)
        self._old, self._new = old, new
        self._table = 0
        self._sections = self._read()
        self._moves: dict[int, _Moves] = {}  # by the section

    def _read(self) -> list[_Section]:
        if not self._content.startswith(_BEGINS) or len(self._content) < _HEADER.size:
            raise CannotMove("it is not an object of 64 bits")
        header = _HEADER.unpack_from(self._content)
        if header[1:3] != (_RELOCATABLE, _X86_64):
            raise CannotMove("it is not an object of x86-64")
        self._table, count = header[6], header[12]
        if count == 0 or header[11] != _SECTION.size:
            raise CannotMove("it has too many sections")
        return [
            _Section(*_SECTION.unpack_from(self._content, self._table + number * _SECTION.size))
            for number in range(count)
        ]

    def written(self) -> bytes:
        for number, section in enumerate(self._sections):
            if section.type == _MANY_SECTIONS or section.flags & _COMPRESSED:
                raise CannotMove("a section is compressed, or there are too many")
            if section.type != _NOTHING:
                self._look_at(number, section)
        symbols = {
            number: self._symbols(section)
            for number, section in enumerate(self._sections)
            if section.type == _SYMBOLS
        }
        for section in self._sections:
            if section.type == _REFERENCES and (pointing := symbols.get(section.link)):
                self._lead(section, pointing)
        for number, pointing in symbols.items():
            self._move_symbols(self._sections[number], pointing)
        for number, moves in self._moves.items():
            self._enlarge(number, moves)
        return bytes(self._content)

    def _data(self, section: _Section) -> bytes:
        return bytes(self._content[section.offset : section.offset + section.size])

    def _look_at(self, number: int, section: _Section) -> None:
        """Find the strings of a section that name the folder."""
        data = self._data(section)
        if section.type == _STRINGS:  # names of symbols; g++ makes some of a file's
            if re.search(re.sub(rb"[^A-Za-z0-9]", b"[^A-Za-z0-9]", self._old), data):
                raise CannotMove("a symbol is called by the folder")
        elif self._old in data:
            if not _holds_strings(section):
                raise CannotMove("something else than a string has the folder in it")
            self._moves[number] = _Moves.of(data, section.alignment, self._old, self._new)

    def _lead(self, section: _Section, pointing: dict[int, _Symbol]) -> None:
        """Lead references to strings that move, as far as they are not by a symbol of theirs."""
        data = self._data(section)
        for place, (_, info, addend) in enumerate(_REFERENCE.iter_unpack(data)):
            if (found := pointing.get(info >> 32)) is None:
                continue
            symbol, moves, value = found
            kind = info & 0xFFFFFFFF
            if symbol == _A_SECTION and kind in _ABSOLUTE:
                led = moves.led(addend)
            elif symbol == _A_SECTION and kind in _RELATIVE:
                led = moves.led_from(addend)
            elif symbol == _NO_TYPE and (
                (kind in _ABSOLUTE and addend == 0) or (kind in _RELATIVE and -8 <= addend <= -4)
            ):
                continue  # the symbol moves
            elif moves.led(value) != value or symbol == _A_SECTION:
                # To a place within, or by rules that are not known here
                raise CannotMove("a string is referred to in another way")
            else:
                continue
            at = section.offset + (place + 1) * _REFERENCE.size - 8
            struct.pack_into("<q", self._content, at, led)

    def _symbols(self, section: _Section) -> dict[int, _Symbol]:
        """The symbols in sections that change, by their numbers."""
        found = {}
        for number, one in enumerate(_SYMBOL.iter_unpack(self._data(section))):
            if (moves := self._moves.get(one[3])) is not None:
                found[number] = _Symbol(one[1] & 15, moves, one[4])
        return found

    def _move_symbols(self, section: _Section, pointing: dict[int, _Symbol]) -> None:
        for number, (kind, moves, value) in pointing.items():
            if kind == _NO_TYPE:
                at = section.offset + number * _SYMBOL.size + 8
                struct.pack_into("<Q", self._content, at, moves.led(value))
            elif kind != _A_SECTION and moves.led(value) != value:
                raise CannotMove("a variable has the folder in it")

    def _enlarge(self, number: int, moves: _Moves) -> None:
        """Put a section's new content behind all else."""
        section = self._sections[number]
        self._content[section.offset : section.offset + section.size] = bytes(section.size)
        self._content += bytes(-len(self._content) % max(section.alignment, 1))
        enlarged = section._replace(offset=len(self._content), size=len(moves.data))
        self._content += moves.data
        _SECTION.pack_into(self._content, self._table + number * _SECTION.size, *enlarged)


def places_of(text: bytes, name: bytes) -> Iterator[int]:
    """The places where a name stands."""
    place = text.find(name)
    while place != -1:
        yield place
        place = text.find(name, place + len(name))


def _holds_strings(section: _Section) -> bool:
    """Whether it holds nothing but strings; or what is not changed, where they are between that."""
    if section.flags & _MERGED_STRINGS == _MERGED_STRINGS:
        return section.entry_size == 1
    return section.type == _DATA and section.flags & (_WRITTEN | _LOADED | _RUN) == _LOADED


class _Moves:
    """The strings of one section that move: where from and to, and the ``data`` with both."""

    def __init__(self, data: bytearray) -> None:
        self.data = data
        self._to: dict[int, int] = {}
        self._within: list[tuple[int, int]] = []  # first and last place of each

    @classmethod
    def of(cls, data: bytes, alignment: int, old: bytes, new: bytes) -> _Moves:
        made = cls(bytearray(data))
        named = re.compile(rb"(?<![\w.+~@%-])" + re.escape(old) + rb"(?![\w.+~@%-])")
        start = 0
        for text in data.split(b"\0")[:-1]:
            if old in text:
                replaced = named.sub(lambda _: new, text)
                if old in named.sub(b"", text):
                    raise CannotMove("a longer name has the folder's in it")
                made.data[start : start + len(text)] = bytes(len(text))
                made.data += bytes(-len(made.data) % max(alignment, 1))
                made._to[start] = len(made.data)
                made._within.append((start, start + len(text)))
                made.data += replaced + b"\0"
            start += len(text) + 1
        if old in data[start:]:
            raise CannotMove("a string has no end")
        return made

    def led_from(self, addend: int) -> int:
        """The same for a reference that is relative to the next instruction: its addend. That is
        4 bytes further on, or up to 8 where the instruction has a number at its end."""
        if addend + 4 in self._to:
            return self.led(addend + 4) - 4
        for rest in range(5):
            self.led(addend + 4 + rest)
        return addend

    def led(self, place: int) -> int:
        """Where what was at a place is now. Raises CannotMove for the middle of a string."""
        if place in self._to:
            return self._to[place]
        if any(first < place <= last for first, last in self._within):
            raise CannotMove("something refers to the middle of a string")
        return place

"""What a shared object would leave behind if it were unloaded, told from its symbols; and a copy that can be unloaded.

The C library never unloads an object that defines *unique* symbols (inline variables, statics of templates), and one
that others may still point into must not be unloaded. Pointers into it come from classes with virtual functions, from
deleters and callbacks, and from what it registers somewhere; all of these show in its symbols, and keep it loaded.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_ELF64_LITTLE = b"\x7fELF\x02\x01"
_SYMTAB, _DYNSYM = 2, 11
_UNIQUE, _WEAK = 10, 2
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")

# Objects that live no longer than a call: the exceptions of the standard library and of pybind11, and their internals.
_PASSING = re.compile(
    r"_ZTV(?:N8pybind11(?:17error_already_set|17builtin_exception|\d+\w*_error)E"
    r"|St(?:16_Sp_counted_base|19_Sp_counted_deleterIPN8pybind116detail25error_fetch_and_normalize))"
)
_KEPT = {
    "makes a tensor of memory that it owns": r"11TensorMaker|13UniqueVoidPtrC\dEPvS\d_PF|7DataPtrC\dEPvS\d_PF",
    "hands out functions": r"_M_manager",
    "defines types for pybind11": r"generic_type10initialize",
    "defines exceptions": r"register_exception|PyErr_NewException",
    "registers types": r"addTypeMetaData|registerCustomClass",
    "starts threads": r"^pthread_create|^thrd_create",
    "handles signals": r"^signal$|^sigaction$",
    "leaves callbacks": r"^(?:Py_AtExit|Py_AddPendingCall|cudaLaunchHostFunc|cudaStreamAddCallback|on_exit)$",
    "names events of the profiler": r"^_ZN2at14RecordFunction",
    "is built with an older pybind11": r"^_ZN8pybind116detail19get_local_internalsEv$",
}
_KEPT_BY = re.compile("|".join(f"(?P<k{index}>{pattern})" for index, pattern in enumerate(_KEPT.values())))
_PYBIND3 = "_ZN8pybind116detail30get_local_internals_pp_managerEv"
_REGISTERS = re.compile(r"^_ZN5torch7LibraryC\d|^_ZN3c1017RegisterOperators")


class NotReadable(ValueError):
    """An object whose symbols cannot be told: not ELF, cut short, or stripped."""


@dataclass(frozen=True)
class _Symbol:
    name: str
    offset: int  # of its entry in the file
    info: int
    section: int  # 0: defined elsewhere

    @property
    def defined(self) -> bool:
        return self.section != 0


@dataclass(frozen=True)
class Symbols:
    """All symbols of a shared object, and those that the loader sees."""

    own: tuple[_Symbol, ...]
    dynamic: tuple[_Symbol, ...]

    @classmethod
    def of(cls, data: bytes) -> Symbols:
        """Raises NotReadable."""
        try:
            own, dynamic = tuple(_table(data, _SYMTAB)), tuple(_table(data, _DYNSYM))
        except (struct.error, IndexError, ValueError) as error:
            raise NotReadable("its symbols cannot be read") from error
        if not own or not dynamic:
            raise NotReadable("it is stripped")
        return cls(own, dynamic)

    @property
    def registers_operators(self) -> bool:
        """Whether it has ``TORCH_LIBRARY`` or its like: torch takes a definition once in a process."""
        return any(not symbol.defined and _REGISTERS.match(symbol.name) for symbol in self.dynamic)

    @property
    def of_cuda(self) -> bool:
        return any(symbol.name == "__cudaRegisterFatBinary" for symbol in self.own)

    def why_kept(self, elsewhere: Callable[[str], bool]) -> str | None:
        """Why it must stay loaded, or None. ``elsewhere`` tells whether torch's libraries define a symbol."""
        if self.registers_operators:
            return "registers operators"
        names = {symbol.name for symbol in self.own}
        for symbol in self.own:
            name = symbol.name
            if "$" in name:
                continue  # the linker's own
            if (match := _KEPT_BY.search(name)) is not None:
                assert match.lastgroup is not None
                reason = list(_KEPT)[int(match.lastgroup[1:])]
                if "older" in reason and _PYBIND3 in names:
                    continue
                return reason
            if name.startswith("_ZTV") and symbol.defined and not _PASSING.match(name) and not elsewhere(name):
                return f"has a class with virtual functions ({name[4:][:60]})"
        return None

    def unloadable(self, data: bytes, elsewhere: Callable[[str], bool]) -> bytes:
        """A copy without unique symbols, which takes the virtual functions of torch's own classes from torch's
        libraries: an object of such a class may outlive this one."""
        copy = bytearray(data)
        for symbol in self.dynamic:
            if not symbol.defined:
                continue
            if symbol.info >> 4 == _UNIQUE:
                copy[symbol.offset + 4] = _WEAK << 4 | symbol.info & 15
            if symbol.name.startswith("_ZTV") and not _PASSING.match(symbol.name) and elsewhere(symbol.name):
                copy[symbol.offset + 6 : symbol.offset + 16] = bytes(10)  # section and value: not defined here
        return bytes(copy)


def _table(data: bytes, kind: int) -> Iterator[_Symbol]:
    if data[:6] != _ELF64_LITTLE:
        raise NotReadable("it is no 64-bit ELF object")
    start, size, count = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
    sections = [_SECTION.unpack_from(data, start + index * size) for index in range(count)]
    for _, found, _, _, offset, length, link, *_ in sections:
        if found != kind:
            continue
        names = sections[link][4]
        for at in range(offset, offset + length, _SYMBOL.size):
            name, info, _, section, _, _ = _SYMBOL.unpack_from(data, at)
            end = data.index(b"\0", names + name)
            yield _Symbol(data[names + name : end].decode("ascii", "replace"), at, info, section)

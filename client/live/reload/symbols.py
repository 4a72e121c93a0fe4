"""What unloading a shared object would leave behind, read from its symbols.
Makes a copy that can be unloaded.

The C library never unloads an object that defines *unique* symbols (inline variables, statics of
templates), and one that others may still point into must not be unloaded. Pointers into it come
from classes with virtual functions, from deleters and callbacks, and from what it registers
somewhere; all of these show in its symbols, and keep it loaded.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import NamedTuple

_ELF64_LITTLE = b"\x7fELF\x02\x01"
_SYMTAB, _DYNSYM = 2, 11
_GLOBAL, _WEAK, _UNIQUE = 1, 2, 10
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")

# Objects that live no longer than a call: the exceptions of the standard library and of pybind11,
# and their internals.
_PASSING = re.compile(
    r"_ZTV(?:N8pybind11(?:17error_already_set|17builtin_exception|\d+\w*_error)E"
    r"|St(?:16_Sp_counted_base"
    r"|19_Sp_counted_deleterIPN8pybind116detail25error_fetch_and_normalize))"
)
_OLDER = "is built with an older pybind11"
_KEPT = {  # reasons, and parts of names that show them; a newline is where a name begins
    "makes a tensor of memory that it owns": [
        "11TensorMaker", "7DataPtrC1EPvS1_PF", "7DataPtrC2EPvS1_PF", "13UniqueVoidPtrC1EPvS2_PF",
        "13UniqueVoidPtrC2EPvS2_PF",
    ],
    "hands out functions": ["_M_manager"],
    "defines types for pybind11": ["generic_type10initialize"],
    "defines exceptions": ["register_exception", "PyErr_NewException"],
    "registers types": ["addTypeMetaData", "registerCustomClass"],
    "starts threads": ["\npthread_create", "\nthrd_create"],
    "handles signals": ["\nsignal\n", "\nsignal@", "\nsigaction"],
    "leaves callbacks": [
        "\nPy_AtExit", "\nPy_AddPendingCall", "\ncudaLaunchHostFunc", "\ncudaStreamAddCallback",
        "\non_exit",
    ],
    "names events of the profiler": ["\n_ZN2at14RecordFunction"],
    _OLDER: ["\n_ZN8pybind116detail19get_local_internalsEv\n"],
}  # fmt: skip
_REGISTERS = ["\n_ZN5torch7LibraryC", "\n_ZN3c1017RegisterOperators"]
_PYBIND3 = "_ZN8pybind116detail30get_local_internals_pp_managerEv"


# Of torch, pybind11, CUDA and the standard libraries: one for all objects of a process
_SHARED = re.compile(
    r"_Z(?:GV|T[VTISW])?[ZN]*[VK]*(?:S[tabsiod]|2at|3c10|5torch|6caffe2|8pybind11|9__gnu_cxx"
    r"|10__cxxabiv1|2nv|3cub|4cuda|6thrust)"
)


class NotReadable(ValueError):
    """An object whose symbols cannot be told: not ELF, cut short, or stripped."""


class _Symbol(NamedTuple):
    name: str
    offset: int  # of its entry in the file
    info: int
    section: int  # 0: defined elsewhere


class Symbols:
    """The symbols of a shared object: all, and those that the loader sees."""

    def __init__(self, data: bytes) -> None:
        """Raises NotReadable."""
        try:
            own, self._dynamic = _table(data, _SYMTAB), _table(data, _DYNSYM)
        except NotReadable:
            raise
        except (struct.error, IndexError, ValueError, OverflowError) as error:
            raise NotReadable("its symbols cannot be read") from error
        if not own or not self._dynamic:
            raise NotReadable("it is stripped")
        self._names = "\n".join(
            ["", *(symbol.name for symbol in own if "$" not in symbol.name), ""]
        )  # $: the linker's
        self._virtual = [
            symbol.name for symbol in own if symbol.section and symbol.name.startswith("_ZTV")
        ]

    @property
    def registers_operators(self) -> bool:
        """Whether it registers operators (``TORCH_LIBRARY``): torch takes them once per process."""
        return any(part in self._names for part in _REGISTERS)

    @property
    def of_cuda(self) -> bool:
        return "__cudaRegisterFatBinary" in self._names

    def why_kept(self, elsewhere: Callable[[str], bool]) -> str | None:
        """Why it must stay loaded, or None.
        ``elsewhere`` tells whether torch's libraries define a symbol."""
        if self.registers_operators:
            return "registers operators"
        for reason, parts in _KEPT.items():
            if any(part in self._names for part in parts) and not (
                reason == _OLDER and _PYBIND3 in self._names
            ):
                return reason
        for name in self._virtual:
            if "$" not in name and not _PASSING.match(name) and not elsewhere(name):
                return f"has a class with virtual functions ({name[4:][:60]})"
        return None

    def unloadable(self, data: bytes, elsewhere: Callable[[str], bool]) -> bytes:
        """A copy without unique symbols, which can be unloaded.
        It takes the virtual functions of torch's classes from torch's libraries: an object
        of such a class may outlive it."""
        copy = bytearray(data)
        for symbol in self._dynamic:
            if symbol.section == 0:
                continue
            if symbol.info >> 4 == _UNIQUE:
                copy[symbol.offset + 4] = _WEAK << 4 | symbol.info & 15
            if (
                symbol.name.startswith("_ZTV")
                and not _PASSING.match(symbol.name)
                and elsewhere(symbol.name)
            ):
                copy[symbol.offset + 4] = _GLOBAL << 4 | symbol.info & 15
                # Section and value: not defined here
                copy[symbol.offset + 6 : symbol.offset + 16] = bytes(10)
        return bytes(copy)


def apart(data: bytes) -> bytes:
    """A copy whose unique symbols are its alone when other objects have the same names, but for
    those of torch and of the libraries below it. Raises NotReadable."""
    try:
        found = _table(data, _DYNSYM)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise NotReadable("its symbols cannot be read") from error
    copy = bytearray(data)
    for symbol in found:
        if symbol.section and symbol.info >> 4 == _UNIQUE and not _SHARED.match(symbol.name):
            copy[symbol.offset + 4] = _WEAK << 4 | symbol.info & 15
    return bytes(copy)


def _table(data: bytes, kind: int) -> list[_Symbol]:
    if data[:6] != _ELF64_LITTLE:
        raise NotReadable("not a 64-bit ELF object")
    start, size, count = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
    sections = [_SECTION.unpack_from(data, start + index * size) for index in range(count)]
    found = []
    for _, section_kind, _, _, offset, length, link, *_ in sections:
        if section_kind != kind:
            continue
        text = data[sections[link][4] : sections[link][4] + sections[link][5]].decode("latin-1")
        entries = _SYMBOL.iter_unpack(data[offset : offset + length])
        for index, (name, info, _, section, _, _) in enumerate(entries):
            found.append(
                _Symbol(
                    text[name : text.index("\0", name)],
                    offset + index * _SYMBOL.size,
                    info,
                    section,
                )
            )
    return found

"""What Python's main program will run: changed in a process that has not come so far yet.

``Py_RunMain`` takes the command, module or file from the interpreter's ``PyConfig``. The fields are
found by their values, as a zygote was started with a name that nothing else has: a Python with
another layout is not served, and never misread. Memory is looked at through ``/proc/self/mem``,
where a word that is no address is an error and no crash.
"""

from __future__ import annotations

import ctypes
import os
import struct

_WORDS = 128  # more than any PyConfig has
_WORD = struct.calcsize("P")
_WIDE = ctypes.sizeof(ctypes.c_wchar)


class NotThisPython(Exception):
    """The fields of this Python's configuration were not found."""


class MainConfig:
    """The configuration of a Python that was started as ``python PLACEHOLDER``.
    Raises NotThisPython."""

    def __init__(self, placeholder: str) -> None:
        try:
            get = ctypes.pythonapi._Py_GetConfig
        except AttributeError:
            raise NotThisPython("it has no _Py_GetConfig") from None
        get.restype = ctypes.c_void_p
        self._start: int = get()
        wanted = placeholder.encode("utf-32-le" if _WIDE == 4 else "utf-16-le") + b"\0" * _WIDE
        memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._find(memory, wanted)
        except OSError as error:
            raise NotThisPython(f"its configuration cannot be read: {error}") from None
        finally:
            os.close(memory)
        self._decode = ctypes.pythonapi.Py_DecodeLocale
        self._decode.restype = ctypes.c_void_p
        self._decode.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
        self._allocate = ctypes.pythonapi.PyMem_RawMalloc
        self._allocate.restype = ctypes.c_void_p
        self._allocate.argtypes = [ctypes.c_size_t]

    def _find(self, memory: int, wanted: bytes) -> None:
        data = os.pread(memory, _WORDS * _WORD, self._start)
        words = struct.unpack(f"{len(data) // _WORD}P", data[: len(data) // _WORD * _WORD])

        def text_at(address: int) -> bool:
            try:
                return os.pread(memory, len(wanted), address) == wanted
            except (OSError, OverflowError):
                return False

        def first_at(address: int) -> int:
            try:
                found: int = struct.unpack("P", os.pread(memory, _WORD, address))[0]
            except (OSError, OverflowError, struct.error):
                return 0
            return found

        files = [i for i, word in enumerate(words) if text_at(word)]
        lists = [
            i for i in range(len(words) - 1)
            if words[i] == 1 and words[i + 1] and text_at(first_at(words[i + 1]))
        ]  # fmt: skip
        # The command and the module stand before the file, in all versions, and are empty.
        found = len(files) == 1 and len(lists) == 1 and files[0] >= 2
        if not found or any(words[files[0] - 2 : files[0]]):
            raise NotThisPython("the layout of its configuration is not known")
        self._command, self._module, self._file = (files[0] - 2 + i for i in range(3))
        self._argv = lists[0]

    def set(self, command: bytes, module: bytes, file: bytes, argv: list[bytes]) -> None:
        """Have this run: one of a command, a module and a file, or neither for standard input."""
        for index, value in ((self._command, command), (self._module, module), (self._file, file)):
            self._put(index, self._text(value) if value else 0)
        items = self._allocate(len(argv) * _WORD)
        if not items:
            raise MemoryError
        ctypes.memmove(
            items, struct.pack(f"{len(argv)}P", *(self._text(word) for word in argv)),
            len(argv) * _WORD,
        )  # fmt: skip
        self._put(self._argv, len(argv))
        self._put(self._argv + 1, items)

    def _text(self, value: bytes) -> int:
        """A copy in the interpreter's memory, decoded as it decodes its command line."""
        address: int | None = self._decode(value, None)
        if not address:
            raise MemoryError
        return address

    def _put(self, index: int, word: int) -> None:
        ctypes.c_size_t.from_address(self._start + index * _WORD).value = word

"""What pybind11 keeps of a module outside of it, in the interpreter's own dictionary.

Since version 3 it remembers each module that it has initialised by its name, and gives that one
again for whatever is loaded under the name later; and it keeps a capsule for each shared object, by
an address in it.
"""

from __future__ import annotations

import ctypes
import functools
import re
from typing import Any

_MODULES = "__pybind11_module_cache"
_OF_OBJECT = r"__pybind11_module_local_.*?(\d+)_?$"  # compiled at first use, which is rare


@functools.cache
def _state() -> dict[Any, Any]:
    """The interpreter's dictionary for extension modules."""
    api = ctypes.pythonapi
    api.PyInterpreterState_Get.restype = ctypes.c_void_p
    api.PyInterpreterState_GetDict.restype = ctypes.c_void_p
    api.PyInterpreterState_GetDict.argtypes = [ctypes.c_void_p]
    found = api.PyInterpreterState_GetDict(api.PyInterpreterState_Get())
    return ctypes.cast(found, ctypes.py_object).value if found else {}


class Remembered:
    """``module``: what pybind11 remembers of one file's module, None where it remembers nothing."""

    def __init__(self) -> None:
        self.module: Any = None


class Apart:
    """While a module of this name is initialised in this block, pybind11 remembers ``own`` alone;
    what it remembered before (a module that stock has loaded under the name, or another build) is
    remembered again afterwards. A class, because each hit enters it."""

    def __init__(self, name: str, own: Remembered) -> None:
        self._name, self._own = name, own

    def __enter__(self) -> None:
        modules = _state().get(_MODULES)
        self._before = None if modules is None else modules.pop(self._name, None)
        if self._own.module is not None:
            _state()[_MODULES][self._name] = self._own.module

    def __exit__(self, *_: object) -> None:
        modules = _state().get(_MODULES)
        self._own.module = None if modules is None else modules.pop(self._name, None)
        if self._before is not None:
            _state()[_MODULES][self._name] = self._before


def forget_object(addresses: range) -> None:
    """Forget what is kept of the shared object that is there, before another takes its place."""
    state = _state()
    for key in filter(lambda key: isinstance(key, str), list(state)):
        if (match := re.match(_OF_OBJECT, key)) and int(match[1]) in addresses:
            del state[key]

"""What pybind11 keeps of a module outside of it, in the interpreter's own dictionary.

Since version 3 it remembers each module that it has initialised by its name, and gives that one
again for whatever is loaded under the name later; and it keeps a capsule for each shared object, by
an address in it.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Iterator
from typing import Any

_MODULES = "__pybind11_module_cache"
_OF_OBJECT = r"__pybind11_module_local_.*?(\d+)_?$"  # compiled at first use, which is rare


def _state() -> dict[Any, Any]:
    """The interpreter's dictionary for extension modules."""
    api = ctypes.pythonapi
    api.PyInterpreterState_Get.restype = ctypes.c_void_p
    api.PyInterpreterState_GetDict.restype = ctypes.c_void_p
    api.PyInterpreterState_GetDict.argtypes = [ctypes.c_void_p]
    found = api.PyInterpreterState_GetDict(api.PyInterpreterState_Get())
    return ctypes.cast(found, ctypes.py_object).value if found else {}


def forget_module(name: str) -> Any:
    """Have the next module of this name initialised; return what was remembered, or None."""
    modules = _state().get(_MODULES)
    return modules.pop(name, None) if modules is not None else None


@contextlib.contextmanager
def unremembered(name: str) -> Iterator[None]:
    """Keep what is remembered under a name, although a module is initialised in this block."""
    before = forget_module(name)
    try:
        yield
    finally:
        forget_module(name)
        if before is not None:
            _state()[_MODULES][name] = before


def forget_object(addresses: range) -> None:
    """Forget what is kept of the shared object that is there, before another takes its place."""
    state = _state()
    for key in filter(lambda key: isinstance(key, str), list(state)):
        if (match := re.match(_OF_OBJECT, key)) and int(match[1]) in addresses:
            del state[key]

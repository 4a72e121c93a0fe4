"""One version of an extension as it is loaded: a module or a library, and how it goes away again.

CPython never unloads an extension module. Versions of a live one are therefore loaded past its
import machinery: each from a file of its own, with its entry point called directly. A version that
nothing refers to any longer is unloaded, if nothing that it left behind can point into it
(``symbols.py``).
"""

from __future__ import annotations

import _ctypes
import contextlib
import ctypes
import functools
import importlib.machinery
import os
import shutil
import sys
import tempfile
import types
import weakref
from pathlib import Path
from typing import Any

from warmcc.client.live.reload.symbols import NotReadable, Symbols
from warmcc.client.loading import pybind11_state

_API_VERSION = 1013


class Inspected:
    """A shared object that is not loaded yet.
    ``kept`` says why it could not be unloaded again, if so."""

    def __init__(self, path: str) -> None:
        """Raises OSError."""
        self.path = path
        self.data = Path(path).read_bytes()
        self.symbols: Symbols | None = None
        try:
            self.symbols = Symbols(self.data)
            self.kept = why_kept(self.symbols)
        except NotReadable as error:
            self.kept = str(error)

    @property
    def registers_operators(self) -> bool:
        return self.symbols is not None and self.symbols.registers_operators


class Library:
    """A loaded shared object. ``kept`` says why it stays loaded for good, if it does."""

    def __init__(self, found: Inspected, name: str, *, is_module: bool) -> None:
        """Load it. Raises ImportError, OSError, and whatever the module's initialisation raises."""
        self.path = found.path
        self.kept = found.kept
        self.gone = False
        self._module: types.ModuleType | None = None
        # The module and what it holds, as long as somebody has them
        self._made: list[weakref.ref[Any]] = []
        self._addresses = range(0)
        self._handle = self._open_copy(found) if self.kept is None else 0
        self._handle = self._handle or _open(self.path)
        if is_module:
            try:
                self._enter(name)
            except BaseException:
                self._close()
                raise

    @property
    def module(self) -> types.ModuleType | None:
        """The module, while it is referenced; None for a library that is not a Python module."""
        return self._module if self._module is not None else self._made[0]() if self._made else None

    def _open_copy(self, found: Inspected) -> int:
        """Load from a file that is removed at once, whose new path makes it a separate object.
        Returns 0 when that is impossible (the folder for temporary files may be mounted
        noexec): the object is kept then."""
        folder = tempfile.mkdtemp(prefix="warmcc-live-")
        try:
            copy = os.path.join(folder, os.path.basename(self.path))
            assert found.symbols is not None
            Path(copy).write_bytes(found.symbols.unloadable(found.data, of_torch))
            handle = _open(copy)
            self._addresses = _mapped(copy)
            return handle
        except (ImportError, OSError) as error:
            self.kept = f"cannot be loaded from a copy: {error}"
            return 0
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _enter(self, name: str) -> None:
        with pybind11_state.Apart(name, pybind11_state.Remembered()):
            self._module = _initialise(self._handle, name, self.path)
        for value in (self._module, *vars(self._module).values()):
            if isinstance(value, (types.BuiltinFunctionType, types.ModuleType, type)):
                self._made.append(weakref.ref(value))

    def retire(self) -> None:
        """Hold it no longer than others do."""
        self._module = None

    def release(self) -> bool:
        """Unload it if nothing refers to it any more; return whether it is unloaded."""
        if (
            not self.gone
            and self.kept is None
            and self._module is None
            and not any(one() for one in self._made)
        ):
            self._close()
        return self.gone

    def _close(self) -> None:
        self._made.clear()
        if self._addresses:
            pybind11_state.forget_object(self._addresses)
        _close(self._handle)
        self.gone = True


def why_kept(symbols: Symbols) -> str | None:
    """Why an object has to stay loaded in this process, or None."""
    torch = sys.modules.get("torch")
    if symbols.of_cuda and torch is not None and torch.cuda.is_initialized():
        return "its kernels may still run"
    if sys.version_info < (3, 11):
        return "this Python keeps names of types that are in it"
    return symbols.why_kept(of_torch)


@functools.cache
def _torch_libraries() -> ctypes.CDLL:
    from torch import _C

    return ctypes.CDLL(_C.__file__)


@functools.cache
def of_torch(name: str) -> bool:
    """Whether torch's libraries, or what they need, define a symbol."""
    return hasattr(_torch_libraries(), name)


def _open(path: str) -> int:
    """As CPython does. Raises ImportError."""
    try:
        return int(_ctypes.dlopen(path, sys.getdlopenflags()))
    except OSError as error:
        raise ImportError(str(error), path=path) from None


def _close(handle: int) -> None:
    with contextlib.suppress(OSError, UnicodeDecodeError):  # the loader's message may be no text
        _ctypes.dlclose(handle)


def _mapped(path: str) -> range:
    """Where a loaded file is in memory."""
    found = []
    for row in Path("/proc/self/maps").read_text().splitlines():
        words = row.split(None, 5)
        if len(words) == 6 and words[5] == path:
            found += [int(bound, 16) for bound in words[0].split("-")]
    return range(min(found, default=0), max(found, default=0))


def _initialise(handle: int, name: str, path: str) -> types.ModuleType:
    """What CPython does with an extension module's entry point.
    Raises ImportError, and what the module raises."""
    entry = getattr(ctypes.PyDLL(path, handle=handle), f"PyInit_{name}", None)
    if entry is None:
        raise ImportError(f"{path} does not define PyInit_{name}", name=name, path=path)
    # A module, which is ours now, or a definition, which nobody owns
    entry.restype = ctypes.c_void_p
    found = entry()
    made = ctypes.cast(found, ctypes.py_object).value
    if isinstance(made, types.ModuleType):
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(made))
        made.__file__ = path
        return made
    api = ctypes.pythonapi
    api.PyModule_FromDefAndSpec2.restype = ctypes.py_object
    api.PyModule_FromDefAndSpec2.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_int]
    api.PyModule_ExecDef.argtypes = [ctypes.py_object, ctypes.c_void_p]
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    spec = importlib.machinery.ModuleSpec(name, loader, origin=path)
    module = api.PyModule_FromDefAndSpec2(found, spec, _API_VERSION)
    module.__spec__, module.__loader__, module.__file__ = spec, loader, path
    api.PyModule_ExecDef(module, found)
    assert isinstance(module, types.ModuleType)
    return module

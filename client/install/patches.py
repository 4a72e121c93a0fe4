"""``warmcc.install()``: torch's own names for building extensions lead to warmcc.

Torch is not imported for that: where ``torch.utils.cpp_extension`` is not there yet, its functions
are replaced as soon as it is. Results lie where torch would have put them, because packages look
for them there. The way back to stock calls torch's own functions (``stock/originals.py``).
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, ClassVar

from warmcc.client.connection.offline import is_offline
from warmcc.client.replacing.at_import import AtImport
from warmcc.client.replacing.switched import Switched
from warmcc.client.stock import originals
from warmcc.errors import CompileError

EXTENSION = "torch.utils.cpp_extension"
# What the objects of a setup.py are compiled by
_BUILD = "BuildExtension.build_extensions"
OBJECTS = "_write_ninja_file_and_compile_objects"
# What torch's two are made of; packages call these as well
LIBRARY = "_write_ninja_file_and_build_library"
NAMES = ("load", "load_inline", "_jit_compile", OBJECTS, LIBRARY)

_lock = threading.RLock()
_ours: dict[str, Callable[..., Any]] = {}


def install() -> Switched:
    """Have ``load``, ``load_inline``, ``_jit_compile`` and what that builds with served by warmcc,
    of ``torch.utils.cpp_extension``, also under the names by which other modules have imported
    them, and what its ``BuildExtension`` compiles for a setup.py.

    ``with warmcc.install(): …`` does it for a block. Once more changes nothing.
    """
    with _lock:
        is_first = not is_installed()
        if is_first:
            module = sys.modules.get(EXTENSION)
            if module is None or not _AtEnd.watches(module):
                _patch_or_wait(module)
        return Switched(uninstall, is_first=is_first)


def uninstall() -> None:
    """Give torch its own functions back, in all modules that have them. Nothing happens where
    warmcc is not installed."""
    with _lock:
        sys.meta_path[:] = [one for one in sys.meta_path if not isinstance(one, _AtImport)]
        _AtEnd.forget()
        _replace({id(ours): originals.kept[name] for name, ours in _ours.items()})
        if _BUILD in originals.kept:
            sys.modules[EXTENSION].BuildExtension.build_extensions = originals.kept[_BUILD]
        _ours.clear()
        originals.kept.clear()


def is_installed() -> bool:
    """Whether torch's names lead to warmcc, or will as soon as torch is imported."""
    waits = bool(_AtEnd.watched) or any(isinstance(one, _AtImport) for one in sys.meta_path)
    return bool(_ours) or waits


class _AtImport(AtImport):
    """Waits for the import of torch's module, and patches it then."""

    def __init__(self) -> None:
        super().__init__({EXTENSION: self._patch})

    def _patch(self, module: ModuleType) -> None:
        with _lock:
            if self in sys.meta_path:  # and not uninstalled meanwhile
                sys.meta_path.remove(self)
                _patch(module)


class _AtEnd(ModuleSpec):
    """The spec of torch's module while that is being imported, by another thread or around the call
    of ``install``: Python notes in the spec when it is done, in front of everything that uses the
    module."""

    watched: ClassVar[list[ModuleSpec]] = []  # at most one

    @classmethod
    def watches(cls, module: ModuleType) -> bool:
        """Whether the module is being imported, and will be patched then."""
        spec = module.__spec__
        if type(spec) is not ModuleSpec or not spec.__dict__.get("_initializing"):
            return False
        cls.watched.append(spec)
        spec.__class__ = cls
        if not spec.__dict__["_initializing"]:  # it has ended in another thread just now
            cls.forget()
            return False
        return True

    @classmethod
    def forget(cls) -> None:
        """Watch no longer."""
        while cls.watched:
            cls.watched.pop().__class__ = ModuleSpec

    @property
    def _initializing(self) -> bool:
        return bool(self.__dict__["_initializing"])

    @_initializing.setter
    def _initializing(self, value: bool) -> None:
        self.__dict__["_initializing"] = value
        with _lock:
            if value or self not in self.watched:  # uninstalled meanwhile
                return
            self.forget()
            _patch_or_wait(sys.modules.get(EXTENSION))


def _patch_or_wait(module: ModuleType | None) -> None:
    """Patch the module, or wait for an import of it: there was none yet, or it has failed."""
    if module is None or any(not hasattr(module, name) for name in NAMES[:2]):
        sys.meta_path.insert(0, _AtImport())
    else:
        _patch(module)


def _patch(module: ModuleType) -> None:
    for name in NAMES:
        if (original := getattr(module, name, None)) is not None:
            originals.kept[name] = original
            make = _without_result if name in (OBJECTS, LIBRARY) else _served
            _ours[name] = make(name, original)
    _watch_setuptools(module)
    _replace({id(originals.kept[name]): ours for name, ours in _ours.items()})


def _replace(others: dict[int, Callable[..., Any]]) -> None:
    """Put others in the place of functions, by identity, in all modules that have one."""
    if not others:
        return
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if type(names) is not dict or names is globals() or names is vars(originals):
            continue
        for name, value in list(names.items()):
            if (other := others.get(id(value))) is not None:
                names[name] = other


def _served(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """What stands in the place of one of torch's functions; its signature is torch's."""

    @functools.wraps(original)
    def call(*positional: Any, **named: Any) -> Any:
        is_off = os.environ.get("WARMCC_DISABLE") == "1" and not is_offline()
        if originals.is_calling() or is_off:
            return original(*positional, **named)
        import inspect

        from warmcc.client.calls import api

        try:
            given = dict(inspect.signature(original).bind(*positional, **named).arguments)
        except TypeError:
            return original(*positional, **named)  # which says what is wrong
        extension = given.get("name")
        if not given.get("build_directory") and isinstance(extension, str):
            given["build_directory"] = originals.original("_get_build_directory")(
                extension, given.get("verbose", False)
            )
        return (api.load_inline if name == "load_inline" else api.load)(**given)

    return call


def _without_result(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """What stands in the place of the functions that build, and neither load nor return anything:
    a setup.py's objects, or a library."""

    @functools.wraps(original)
    def call(*positional: Any, **named: Any) -> None:
        if originals.is_calling():
            return original(*positional, **named)  # type: ignore[no-any-return]
        import inspect

        from warmcc.client.calls import api, library, objects

        try:
            given = inspect.signature(original).bind(*positional, **named).arguments
        except TypeError:
            return original(*positional, **named)  # type: ignore[no-any-return]
        module = sys.modules[EXTENSION]

        def served() -> None:
            if name == OBJECTS:
                objects.compile_objects(given, module)
            else:
                library.build(given)

        def stock() -> None:
            with originals.calling():
                original(*positional, **named)

        api.or_stock(served, stock)
        return None

    return call


def _watch_setuptools(module: ModuleType) -> None:
    """Have ``BuildExtension`` compile by the daemon where it does so without ninja, a command at a
    time."""
    original = originals.kept[_BUILD] = module.BuildExtension.build_extensions

    @functools.wraps(original)
    def build_extensions(self: Any) -> None:
        from warmcc.client.calls import alike

        alike.announce(self)
        self.compiler.spawn = _spawning(self.compiler.spawn, module)
        original(self)

    module.BuildExtension.build_extensions = build_extensions


def _spawning(spawn: Callable[..., Any], module: ModuleType) -> Callable[..., Any]:
    """What stands in the place of a compiler's method that runs a command."""

    def call(command: Sequence[Any], *positional: Any, **named: Any) -> Any:
        from warmcc.client.calls import api, objects

        def stock() -> Any:
            return spawn(command, *positional, **named)

        if originals.is_calling() or not objects.is_compile(command):
            return stock()
        words = list(command)
        try:
            return api.or_stock(lambda: objects.compile_command(words, module), stock)
        except CompileError as error:
            from setuptools.errors import ExecError  # type: ignore[import-untyped]

            raise ExecError(str(error)) from None  # which setuptools expects of its commands

    return call

"""What a zygote has imported, and by which files and variables: is it what a new process would get?

Noted while it imports: each file of a module or library, the names that were not found, and the
variables that Python code read. Looked at again for each run.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_Stamp = tuple[int, int, int, int]
# Packages that list the environment to find names with a prefix: one of client/run/facts.py.
_LOOK_FOR_PREFIXES = ("networkx", "tqdm")
_MAPPINGS = ("os", "collections.abc", "_collections_abc")  # on the way to os.environ
_ENDINGS = ("py", "pyc", "so")


class Recorder:
    """Notes, from its making until ``stop``, the variables that are read from ``os.environ``, and
    the modules that nothing finds."""

    def __init__(self) -> None:
        self.read: dict[str, str | None] = {}
        self.lister = ""  # the package that read all of them
        self.missing: set[str] = set()
        self.folders = {path or ".": _stamp(path or ".") for path in sys.path}
        self.entries = {path: _entries(path) for path in self.folders}
        self.began = time.time_ns()
        self._get = os._Environ.__getitem__
        self._iterate = os._Environ.__iter__
        recorder = self

        def get(environ: Any, name: Any) -> Any:
            if not (_is_listing() and _lister() in _LOOK_FOR_PREFIXES):
                value = os.environ._data.get(os.fsencode(name))  # type: ignore[attr-defined]
                recorder.read.setdefault(_name(name), value)
            return recorder._get(environ, name)

        def iterate(environ: Any) -> Any:
            if (lister := _lister()) not in _LOOK_FOR_PREFIXES:
                recorder.lister = recorder.lister or lister
            return recorder._iterate(environ)

        os._Environ.__getitem__ = get  # type: ignore[method-assign]
        os._Environ.__iter__ = iterate  # type: ignore[method-assign]
        sys.meta_path.append(self)

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        """The last finder: it finds nothing."""
        self.missing.add(name.partition(".")[0])

    def stop(self) -> None:
        os._Environ.__getitem__ = self._get  # type: ignore[method-assign]
        os._Environ.__iter__ = self._iterate  # type: ignore[method-assign]
        sys.meta_path.remove(self)


def _is_listing() -> bool:
    """Whether a value is read as one of all (``items``, ``values``)."""
    return sys._getframe(2).f_code.co_name == "__iter__"


def _lister() -> str:
    """The package whose code lists the environment."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__") in _MAPPINGS:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def _name(name: Any) -> str:
    return os.fsdecode(name)


class Imported:
    """The state of a zygote that has imported all it will; ``first`` are the modules that each
    Python has before its script."""

    def __init__(self, recorder: Recorder, first: Iterable[str]) -> None:
        self.read = {name: _value(value) for name, value in recorder.read.items()}
        self.lister = recorder.lister
        first_names = {name.partition(".")[0] for name in first}
        loaded = {name.partition(".")[0] for name in list(sys.modules)} - {"warmcc"}
        self._loaded, self._missing = loaded - first_names, recorder.missing - loaded
        self._folders = recorder.folders
        self._entries = {path: self._ours(path, of) for path, of in recorder.entries.items()}
        self._began = recorder.began
        files = {*_module_files(), *_mapped_files(), *_paths_files(self._folders)}
        self._files = {path: _stamp(path) for path in files}

    def why_changed_meanwhile(self) -> str:
        """The file or folder that changed while modules were imported; '' where none did."""
        for path in self._folders:
            if self._ours(path, _entries(path)) != self._entries[path]:
                return f"{path} changed during the import"
        for path, stamp in self._files.items():
            if stamp is None or stamp[2] >= self._began:
                return f"{path} changed during the import"
        return ""

    def why_stale(self) -> str:
        """The file or folder that has changed; '' where a new process would import the same."""
        for path, stamp in self._files.items():
            if _stamp(path) != stamp:
                return f"{path} has changed"
        for path, stamp in self._folders.items():
            if _stamp(path) == stamp:
                continue
            if self._ours(path, _entries(path)) != self._entries[path]:
                return f"{path} has changed"
        return ""

    def why_not_for(self, environment: Mapping[bytes, bytes]) -> str:
        """The variable that was read at import and differs; '' where there is none."""
        for name, value in self.read.items():
            if environment.get(os.fsencode(name)) != value:
                return f"{name} differs from its value when it was read at import"
        return ""

    def shadowed(self, folder: str) -> str:
        """An entry of the script's folder that python would import instead of what is imported
        here; '' where there is none."""
        try:
            return next((one for one in os.listdir(folder) if self._hides(folder, one)), "")
        except OSError:
            return ""

    def _ours(self, folder: str, entries: frozenset[str]) -> frozenset[str]:
        """What in a folder of modules could change an import: entries named like a module that was
        imported or not found; where packages are installed, all of them."""
        if any(entry.endswith((".dist-info", ".egg-info", ".pth")) for entry in entries):
            return entries
        return frozenset(entry for entry in entries if self._hides(folder, entry))

    def _hides(self, folder: str, entry: str) -> bool:
        """Whether a name that was imported, or not found, would be this entry of a folder before
        the others. A folder that is no package is found last."""
        name, _, ending = entry.partition(".")
        if ending and not ending.endswith(_ENDINGS):
            return False
        if name in self._missing:
            return True
        if name not in self._loaded or ending:
            return name in self._loaded
        try:
            return any(one.startswith("__init__.") for one in os.listdir(f"{folder}/{entry}"))
        except OSError:  # no folder, or one that cannot be listed
            return os.path.isdir(f"{folder}/{entry}")


def _entries(folder: str) -> frozenset[str]:
    """What is in a folder, but for the byte code that an import writes."""
    try:
        return frozenset(os.listdir(folder)) - {"__pycache__"}
    except OSError:
        return frozenset()


def _value(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def _stamp(path: str) -> _Stamp | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _module_files() -> Iterator[str]:
    for module in list(sys.modules.values()):
        path = getattr(getattr(module, "__spec__", None), "origin", None)
        if isinstance(path, str) and os.path.isabs(path):
            yield path


def _paths_files(folders: Iterable[str]) -> Iterator[str]:
    """Files that add folders of modules: those of the folders, and of the virtual environment."""
    for folder in folders:
        with contextlib.suppress(OSError):
            for entry in os.listdir(folder):
                if entry.endswith(".pth"):
                    yield os.path.join(folder, entry)
    configuration = os.path.join(sys.prefix, "pyvenv.cfg")
    if os.path.exists(configuration):
        yield configuration


def _mapped_files() -> Iterator[str]:
    """The program and its libraries; what is stamped is what the path has now."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            fields = line.rstrip("\n").split(maxsplit=5)
            if len(fields) == 6 and fields[5].startswith("/"):
                yield fields[5]

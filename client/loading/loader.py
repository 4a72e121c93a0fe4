"""From an artifact to what stock returns: a module, a loaded library, or a path.
Puts copies into the build directory.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.util
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from warmcc.client.loading import pybind11_state
from warmcc.protocol import BUILD_DIRECTORY, Built
from warmcc.request import Request

# Copies that this process has loaded as libraries → the artifacts that they were
_loaded: dict[str, str] = {}
# Names of modules → the artifacts that this process loaded last under them
_modules: dict[str, str] = {}
# Artifacts → what pybind11 remembers of their modules
_remembered: dict[str, pybind11_state.Remembered] = {}
_loading = threading.RLock()  # a module may load others while it is initialised
_Look = tuple[int, int, int, int, int] | None
# Artifacts, folders and texts → how the files looked when all copies in there were compared
_placed: dict[tuple[Any, ...], list[tuple[str, _Look]]] = {}
_NINJAS = "build.ninja"
_MOST = 256
_STEP = 1_000_000_000


def load(request: Request, built: Built, directory: str | None) -> Any:
    """Load an artifact as stock does, after placing its copy in ``directory``, if any.
    ``directory`` is as the caller wrote it.

    A module is loaded from the store, where every build has a path of its own: the dynamic loader
    gives the old code for a path that it knows.
    """
    copy = place(built, directory) if directory is not None else None
    if request.is_standalone:
        return copy or built.path
    if not request.is_python_module:
        return _load_library(built.path, copy)
    _make_room(request.module_name, built.path)
    spec = importlib.util.spec_from_file_location(request.module_name, built.path)
    if spec is None or not isinstance(spec.loader, importlib.abc.Loader):
        raise AssertionError(
            f"Failed to create spec for module {request.module_name} at {built.path}"
        )
    with _loading:
        own = _remembered.setdefault(built.path, pybind11_state.Remembered())
        with pybind11_state.Apart(request.module_name, own):
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
    return module


def _forked() -> None:
    """A child of fork has none of the threads that were loading."""
    global _loading
    _loading = threading.RLock()


os.register_at_fork(after_in_child=_forked)


def _make_room(name: str, artifact: str) -> None:
    """Take an older build of a module out of ``sys.modules``.

    CPython enters modules of single-phase initialisation there by itself, and when it meets a file
    for the second time it fills whatever stands there under the name with the functions of that
    file: after an edit of a header and back, the module of the edit would turn into the first one
    under its user's hands. (pybind11 has a memory of its own: ``pybind11_state.py``.)
    """
    with _loading:
        before = _modules.get(name)
        _modules[name] = artifact
        if before in (None, artifact):
            return
        if getattr(sys.modules.get(name), "__file__", None) == before:
            del sys.modules[name]


def _load_library(artifact: str, copy: str | None) -> str:
    """Load a library into the process, and give the path that stock gives for it.

    With a build directory this is the copy: a caller who loads the returned path again must get the
    same library, not a second one that registers its operators twice. Only where this process knows
    the path as something older (a header was edited since) is the artifact loaded from the store.
    """
    import torch

    with _loading:
        known = copy is not None and _loaded.setdefault(os.path.abspath(copy), artifact) == artifact
    try:
        torch.ops.load_library(copy if known and copy is not None else artifact)  # type: ignore[no-untyped-call]
    except BaseException:
        if known and copy is not None:
            _loaded.pop(os.path.abspath(copy), None)
        raise
    return copy or artifact


def place(built: Built, directory: str) -> str:
    """Put copies of the artifact and of stock's other files into ``directory``.
    Returns the path of the artifact's copy.

    A file that is as it should be is not touched, any other is replaced in one step; but stock
    writes the file for ninja only where something changed, and so it is not looked at again while
    the others are as they were. Raises OSError.
    """
    folder = os.path.abspath(directory)
    target = os.path.join(directory, os.path.basename(built.path))
    what = (built.path, folder, *built.sources.items())
    seen = _placed.get(what)
    if seen is not None and all(_look(path) == known for path, known in seen):
        return target
    os.makedirs(folder, exist_ok=True)
    names = map(os.path.basename, (built.path, *built.sources))
    paths = (built.path, *(f"{folder}/{name}" for name in names if name != _NINJAS))
    looks = [(path, _look(path)) for path in paths]  # before all comparing: see _is_settled
    if _place(built, folder) and all(_is_settled(look) for _, look in looks):
        while len(_placed) >= _MOST:
            _placed.pop(next(iter(_placed)))
        _placed[what] = looks
    return target


def _place(built: Built, folder: str) -> bool:
    """Whether all copies were there."""
    were_there = True
    target = os.path.join(folder, os.path.basename(built.path))
    artifact = os.stat(built.path)
    if not _is_copy(target, artifact):
        were_there = False
        with replacing(target, 0o777) as draft:
            shutil.copyfile(built.path, draft)
            # By its time the next call knows the copy again.
            os.utime(draft, ns=(artifact.st_atime_ns, artifact.st_mtime_ns))
    for name, text in built.sources.items():
        content = text.replace(BUILD_DIRECTORY, folder).encode("utf-8")
        path = os.path.join(folder, os.path.basename(name))
        if not _holds(path, content):
            were_there = False
            with replacing(path, 0o666) as draft, open(draft, "wb") as file:
                file.write(content)
    return were_there


def _look(path: str) -> _Look:
    """What changes when a file is written or replaced; the last is the time."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _is_settled(look: _Look) -> bool:
    """Whether a change after the look would be seen, as what is written later has another time: a
    file system's clock takes steps."""
    return look is not None and look[-1] < time.time_ns() - _STEP


def put(artifact: str, path: str, mode: int = 0o666) -> None:
    """Put a copy at ``path``, in one step; its ``mode`` is cut by the user's umask.
    Raises OSError."""
    with replacing(path, mode) as draft:
        shutil.copyfile(artifact, draft)


def _is_copy(path: str, artifact: os.stat_result) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return (found.st_size, found.st_mtime_ns) == (artifact.st_size, artifact.st_mtime_ns)


def _holds(path: str, content: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(content) + 1) == content
    except OSError:
        return False


@contextlib.contextmanager
def replacing(path: str, mode: int) -> Iterator[str]:
    """An empty file beside ``path`` to be written, which then takes its place.
    ``mode`` is cut by the user's umask."""
    draft = os.path.join(os.path.dirname(path), f".warmcc-{os.urandom(8).hex()}")
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
    try:
        yield draft
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise

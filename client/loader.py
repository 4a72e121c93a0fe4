"""From an artifact to what stock returns (a module, a loaded library, a path), and its copy in the build directory."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

from warmcc.protocol import BUILD_DIRECTORY, Built
from warmcc.request import Request


def load(request: Request, built: Built) -> Any:
    """Load an artifact as stock does, after placing its copy where the caller asked for one.

    The artifact itself is loaded from the store, where every build has a path of its own: the loader would give the old
    code for a path that it knows.
    """
    placed = place(request, built)
    if request.is_standalone:
        return placed or built.path
    if not request.is_python_module:
        import torch

        torch.ops.load_library(built.path)  # type: ignore[no-untyped-call]
        return placed or built.path
    spec = importlib.util.spec_from_file_location(request.module_name, built.path)
    assert spec is not None and isinstance(spec.loader, importlib.abc.Loader)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build_directory(request: Request) -> str | None:
    """Where the caller wants copies: ``build_directory``, or a folder below ``TORCH_EXTENSIONS_DIR``; or None."""
    if request.build_directory is not None:
        return request.build_directory
    root = request.environment.get("TORCH_EXTENSIONS_DIR")
    return os.path.join(os.path.abspath(root), request.name) if root else None


def place(request: Request, built: Built) -> str | None:
    """Put copies of the artifact and of what stock leaves beside it into the build directory.

    Gives the path of the artifact's copy, None when the caller asked for none. Raises OSError.
    """
    folder = build_directory(request)
    if folder is None:
        return None
    if request.build_directory is None:
        os.makedirs(folder, exist_ok=True)
    target = os.path.join(folder, os.path.basename(built.path))
    if not _same_stat(built.path, target):
        with _replacing(target) as draft:
            shutil.copy2(built.path, draft)  # with its time, by which the next call knows it again
    for name, text in built.sources.items():
        content = text.replace(BUILD_DIRECTORY, folder).encode("utf-8")
        path = os.path.join(folder, os.path.basename(name))
        if not _same_content(path, content):
            with _replacing(path) as draft, open(draft, "wb") as file:
                file.write(content)
    return target


def _same_stat(artifact: str, copy: str) -> bool:
    try:
        one, other = os.stat(artifact), os.lstat(copy)
    except OSError:
        return False
    return (one.st_size, one.st_mtime_ns) == (other.st_size, other.st_mtime_ns)


def _same_content(path: str, content: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(content) + 1) == content
    except OSError:
        return False


@contextlib.contextmanager
def _replacing(path: str) -> Iterator[str]:
    """A file beside ``path`` to be written, which then takes its place in one step."""
    descriptor, draft = tempfile.mkstemp(prefix=".warmcc-", dir=os.path.dirname(path))
    os.close(descriptor)
    try:
        os.chmod(draft, 0o644)
        yield draft
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise

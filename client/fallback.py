"""The stock path: the caller's own call, made to torch, when the daemon cannot or shall not serve it.

Stock is kept from two of its traps on the way: a ``lock`` file that a dead process left hangs nobody, and a failed
build is tried again by the next equal call.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import warnings
from collections.abc import Iterator
from typing import Any

from warmcc.errors import WarmccWarning

_warned: set[str] = set()


def warn_once(reason: str) -> None:
    """Say once per process and reason why stock torch builds instead."""
    first = reason.split("\n")[0]
    if first not in _warned:
        _warned.add(first)
        instead = "Stock torch builds this extension instead, more slowly (WARMCC_FALLBACK=0 makes this an error)."
        warnings.warn(f"{reason}\n{instead}", WarmccWarning, stacklevel=4)


def _copied(value: Any) -> Any:
    """Stock inserts into the caller's lists; it may have copies."""
    return list(value) if isinstance(value, list) else value


def stock(function: str, arguments: dict[str, Any]) -> Any:
    """Call ``torch.utils.cpp_extension.load`` or ``load_inline`` with the caller's arguments."""
    from torch.utils import cpp_extension

    arguments = {key: _copied(value) for key, value in arguments.items()}
    name = arguments.get("name")
    with _unlocked(cpp_extension, arguments), _forgetting_failure(cpp_extension, name):
        return getattr(cpp_extension, function)(**arguments)


def _folder(extension: Any, arguments: dict[str, Any]) -> str | None:
    """The build directory that stock will use, without creating it."""
    given = arguments.get("build_directory")
    if given:
        return str(os.fspath(given))
    root = os.environ.get("TORCH_EXTENSIONS_DIR")
    name = arguments.get("name")
    if not isinstance(name, str):
        return None
    with contextlib.suppress(Exception):
        return str(extension._get_build_directory(name, False))
    return os.path.join(root, name) if root else None


@contextlib.contextmanager
def _unlocked(extension: Any, arguments: dict[str, Any]) -> Iterator[None]:
    """Remove a stale ``lock`` of stock's: it exists, and no process has it open, as stock does while it builds.

    Processes of warmcc take turns by a lock that the kernel lets go of, so that two of them cannot remove each other's.
    """
    folder = _folder(extension, arguments)
    if folder is None or not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        yield
        return
    guard = os.open(os.path.join(folder, ".warmcc-lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(guard, fcntl.LOCK_EX)
        lock = os.path.join(folder, "lock")
        if os.path.exists(lock) and not _is_open_anywhere(lock):
            warnings.warn(f"removed the lock of a dead process: {lock}", WarmccWarning, stacklevel=6)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(lock)
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, ".warmcc-lock"))
        os.close(guard)


def _is_open_anywhere(path: str) -> bool:
    """Whether a process of this user has the file open."""
    wanted = os.stat(path)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    found = entry.stat()
                    if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                        return True
    return False


@contextlib.contextmanager
def _forgetting_failure(extension: Any, name: Any) -> Iterator[None]:
    """After a failed build, let stock forget that it tried: else the next equal call imports what was never built."""
    entries = getattr(getattr(extension, "JIT_EXTENSION_VERSIONER", None), "entries", {})
    known = entries.get(name) if isinstance(name, str) else None
    try:
        yield
    except BaseException:
        if isinstance(name, str):
            if known is None:
                entries.pop(name, None)
            else:
                entries[name] = known
        raise

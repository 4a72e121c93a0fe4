"""The native launcher (``launch.c``): a kernel that is launched again and again does it in C.

The daemon compiles it with the user's compiler, once for each Python, and a thread fetches it while
the kernel is launched as before. Without a daemon, a compiler or Python's headers, launches stay
Python's: the same, and some two microseconds longer.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import sysconfig
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from warmcc.client.connection import session
from warmcc.client.kernel import compiling, requests
from warmcc.client.kernel.launcher import (
    LOWEST,
    Handle,
    dtypes_of,
    may_be_complex,
    offsets,
    plain,
)  # fmt: skip
from warmcc.client.kernel.signature import Signature
from warmcc.errors import WarmccError

SOURCE = Path(__file__).with_name("launch.c")
_NAME = "warmcc_launch"
Native = Callable[..., None]  # (kernel, args, grid, block, shared)
_FORMATS = frozenset("?bBhHiIqQfd")


_lock = threading.Lock()
_fetched: list[Any] = []  # the module, or None where it cannot be had


def when_there(use: Callable[[Any], None]) -> None:
    """Have ``use`` called with the module: at once if it is loaded, else in another thread."""
    if _fetched:
        _give(use)
    else:
        threading.Thread(target=_give, args=(use,), name="warmcc-native", daemon=True).start()


def _give(use: Callable[[Any], None]) -> None:
    found = module()
    if found is not None:
        use(found)


def module() -> Any | None:
    """The compiled module. None where the daemon did not compile it, which is counted there."""
    with _lock:
        if not _fetched:
            try:
                _fetched.append(_fetch())
            except (WarmccError, OSError, ImportError, TypeError):
                _fetched.append(None)
                compiling.count("kernel: no native launcher")
            session.forget()  # it was this thread's
        return _fetched[0]


def _fetch() -> Any | None:
    """Raises WarmccError, OSError, ImportError; TypeError where a request cannot be made."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None  # it relies on the lock
    headers = {sysconfig.get_path("include"), sysconfig.get_path("platinclude")}
    request = requests.request(
        SOURCE.read_text(encoding="utf-8"), None, _NAME, "cc", options=[],
        include_dirs=sorted(headers), names=[],
    )  # fmt: skip
    compiled = compiling.asked(request)
    if compiled is None or not compiled.path:
        raise ImportError("the daemon left it to this process")
    return loaded(compiled.path)


def loaded(path: str) -> Any:
    """The module in a file. Raises ImportError."""
    loader = importlib.machinery.ExtensionFileLoader(_NAME, path)
    spec = importlib.util.spec_from_loader(_NAME, loader)
    assert spec is not None
    found = importlib.util.module_from_spec(spec)
    loader.exec_module(found)
    return found


def make(
    module: Any, signature: Signature, sizes: list[int], handle: Handle, device: int,
    strided: frozenset[str], torch_says: tuple[Callable[[], int], Callable[[int], int]],
) -> Native | None:  # fmt: skip
    """A launcher for one kernel on one device; ``torch_says`` tells the current device, and the
    current stream of it. None where a parameter's type is not known in C."""
    found = []
    for one, offset in zip(signature.parameters, offsets(sizes), strict=True):
        kind = one.type
        assert kind is not None
        if kind.kind == "pointer":
            contiguous = one.name not in strided
            found.append(
                ("P", offset, kind.alignment - 1, contiguous, may_be_complex(kind), dtypes_of(kind))
            )
        elif kind.kind in ("integer", "float", "bool") and kind.format in _FORMATS:
            found.append((kind.format, offset, 0, False, False, ()))
        elif kind.kind == "bfloat16":
            found.append(("T", offset, 0, False, False, ()))
        else:
            return None
    call = ctypes.cast(handle.call, ctypes.c_void_p).value  # type: ignore[arg-type]
    try:
        made: Native = module.launcher(
            tuple(found), plain(), torch_says, call, handle.kernel.value, device, LOWEST
        )
    except ValueError:
        return None  # more than its memory holds
    return made

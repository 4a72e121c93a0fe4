"""The stock path: the caller's own call goes to torch when the daemon cannot serve it.

Stock avoids three traps on the way: the lock file of a dead process is ignored
(baton), a failed build is tried again by the next equal call, and the caller's lists stay as they
were.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from warmcc.client.notices import warn_once
from warmcc.client.stock import originals
from warmcc.client.stock.lock_file import patient
from warmcc.errors import WarmccWarning


def say_why(reason: str) -> None:
    """Warn, once per process and reason, that stock torch builds instead."""
    warn_once(
        f"{reason}\nStock torch builds this extension instead, which is slower. "
        "(WARMCC_FALLBACK=0 makes this an error; WARMCC_DISABLE=1 always uses stock torch.)",
        WarmccWarning,
    )


def stock(call: str, arguments: dict[str, Any]) -> Any:
    """Call ``torch.utils.cpp_extension.load`` or ``load_inline`` with the caller's arguments."""
    from torch.utils import cpp_extension

    copies = {
        key: list(value) if type(value) is list else value for key, value in arguments.items()
    }
    forgetting = _forgetting_failure(cpp_extension, arguments.get("name"))
    with patient(cpp_extension), forgetting, originals.calling():
        return originals.original(call)(**copies)


@contextlib.contextmanager
def _forgetting_failure(extension: Any, name: Any) -> Iterator[None]:
    """Let stock forget a failed build: the next equal call would import what was never built."""
    entries = getattr(getattr(extension, "JIT_EXTENSION_VERSIONER", None), "entries", None)
    if not isinstance(entries, dict) or not isinstance(name, str):
        yield
        return
    known = entries.get(name)
    try:
        yield
    except BaseException:
        if known is None:
            entries.pop(name, None)
        else:
            entries[name] = known
        raise

"""warmcc: build PyTorch's inline C++ extensions through a persistent, warm compile daemon.

``warmcc.load_inline`` and ``warmcc.load`` take what ``torch.utils.cpp_extension.load_inline`` and
``load`` take; ``warmcc.install`` puts warmcc behind torch's own names; ``warmcc.watch`` and
``warmcc.reloading`` give a module that follows its source files. Importing this package does not
import torch: that waits for the first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warmcc.version import __version__

if TYPE_CHECKING:
    from warmcc.client.calls.api import load, load_inline
    from warmcc.client.install.patches import install, uninstall
    from warmcc.client.live.handle import reloading, watch
    from warmcc.errors import CompileError, WarmccError, WarmccWarning

__all__ = [
    "CompileError", "WarmccError", "WarmccWarning", "__version__", "install", "load",
    "load_inline", "reloading", "uninstall", "watch",
]  # fmt: skip

_HOMES = {
    "install": "warmcc.client.install.patches", "uninstall": "warmcc.client.install.patches",
    "load": "warmcc.client.calls.api", "load_inline": "warmcc.client.calls.api",
    "load_ipython_extension": "warmcc.client.integrations.notebook",
    "reloading": "warmcc.client.live.handle", "watch": "warmcc.client.live.handle",
    "CompileError": "warmcc.errors", "WarmccError": "warmcc.errors",
    "WarmccWarning": "warmcc.errors",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'warmcc' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

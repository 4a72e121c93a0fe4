"""``warmcc.inductor``: have the daemon compile what torch.compile compiles with a C++ compiler.

``warmcc.inductor.enable()`` does so in this process, until ``warmcc.inductor.disable()``;
``with warmcc.inductor.enable(): …`` for a block. Neither imports torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warmcc.client.inductor.switch import disable, enable, is_enabled

__all__ = ["disable", "enable", "is_enabled"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'warmcc.inductor' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module("warmcc.client.inductor.switch"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

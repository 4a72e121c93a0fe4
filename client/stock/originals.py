"""Torch's own functions for building extensions, also while warmcc stands in their place."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

# By name, while ``warmcc.install()`` has put others in their place
kept: dict[str, Callable[..., Any]] = {}


class _Calling(threading.local):
    depth = 0


_calling = _Calling()


def original(name: str) -> Callable[..., Any]:
    """A function of ``torch.utils.cpp_extension`` as torch has it."""
    from torch.utils import cpp_extension

    found: Callable[..., Any] = kept.get(name) or getattr(cpp_extension, name)
    return found


@contextlib.contextmanager
def calling() -> Iterator[None]:
    """While the block runs, what this thread calls by torch's names is torch's own: stock torch
    calls itself by them."""
    _calling.depth += 1
    try:
        yield
    finally:
        _calling.depth -= 1


def is_calling() -> bool:
    """Whether stock torch is at work in this thread, called by warmcc."""
    return _calling.depth > 0

"""Python warnings in the name of whoever called warmcc, each once."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Hashable

_given: set[Hashable] = set()


def warn_once(text: str, category: type[Warning], key: Hashable = None) -> None:
    """Issue a warning at the caller's line, once per process and ``key`` (default: the text)."""
    key = (category, text if key is None else key)
    if key in _given:
        return
    _given.add(key)
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in (
        "warmcc",
        "contextlib",
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)

"""C and C++ sources that the daemon compiles itself, with the user's compiler."""

from __future__ import annotations

from pathlib import Path


def path(name: str) -> Path:
    """Where a source is."""
    return Path(__file__).with_name(name)

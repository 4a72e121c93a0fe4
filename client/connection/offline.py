"""``WARMCC_OFFLINE``: this machine compiles nothing, and starts no daemon."""

from __future__ import annotations

import os


def is_offline() -> bool:
    """Whether a call may only be answered from unpacked bundles."""
    return os.environ.get("WARMCC_OFFLINE", "") not in ("", "0")

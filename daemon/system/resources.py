"""What this machine has for builds: processors and memory."""

from __future__ import annotations

import os


def available_memory() -> int:
    """Bytes that new processes may use, as the kernel estimates it (``MemAvailable``)."""
    import psutil

    return int(psutil.virtual_memory().available)


def total_memory() -> int:
    """Bytes of memory of this machine."""
    import psutil

    return int(psutil.virtual_memory().total)


def processors() -> int:
    return len(os.sched_getaffinity(0))

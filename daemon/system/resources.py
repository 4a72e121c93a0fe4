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


def memory_limit() -> int:
    """Bytes of memory that all processes here may have together: the machine's, or less in a container."""
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
            return min(int(file.read()), total_memory())
    except (OSError, ValueError):  # "max"; the first version of control groups
        return total_memory()


def processors() -> int:
    return len(os.sched_getaffinity(0))

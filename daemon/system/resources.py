"""What this machine has for builds: processors and memory."""

from __future__ import annotations

import os

_QUOTA = "/sys/fs/cgroup/cpu.max"


def available_memory() -> int:
    """Bytes that new processes may use, as the kernel estimates it (``MemAvailable``)."""
    import psutil

    return int(psutil.virtual_memory().available)


def total_memory() -> int:
    """Bytes of memory of this machine."""
    import psutil

    return int(psutil.virtual_memory().total)


def memory_limit() -> int:
    """Bytes of memory for all processes here: the machine's, or less in a container."""
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
            return min(int(file.read()), total_memory())
    except (OSError, ValueError):  # "max"; the first version of control groups
        return total_memory()


def processors() -> int:
    """How many processors these processes may use: fewer under a container's quota."""
    allowed = len(os.sched_getaffinity(0))
    try:
        with open(_QUOTA, encoding="ascii") as file:
            quota, period = map(int, file.read().split())
        return max(1, min(allowed, -(-quota // period)))
    except (OSError, ValueError, ZeroDivisionError):  # "max"; the first version of control groups
        return allowed


def steps() -> int:
    """How many compilers ninja runs at a time by default.
    Some more than processors, so that a package of one file more than these does not take twice
    as long."""
    count = processors()
    return count + 2 if count > 2 else min(count, 2) + 1


def precompilers() -> int:
    """How many precompiled headers are made at a time beside builds: each takes a processor, and
    memory for a minute."""
    return max(1, min(processors() // 4, total_memory() >> 34))

"""What an earlier daemon on this cache left running: found by a mark in the environment, and ended.

A daemon that is killed together with its reaper (``reaper.py``) cannot end what it started. Most of
that ends by itself: fork servers, zygotes, ninja and its compilers. A program that hangs does not,
and the next daemon ends it.

The mark names the cache by device and inode, so that it is right in containers too, where another
cache may have the same path. It is in the environment from a process's first moment on, and its
children's; no list has to be kept.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

VARIABLE = "WARMCC_STARTED_FOR"
PATIENCE_SECONDS = 5.0


def mark(cache: Path) -> dict[str, str]:
    """The variable that every process gets which is started for a cache."""
    found = cache.stat()
    return {VARIABLE: f"{found.st_dev}-{found.st_ino}"}


def end(cache: Path) -> int:
    """Kill every process of this user that was started for a cache; how many.
    Only for who holds the cache's lock, and has started nothing yet."""
    wanted = f"{VARIABLE}={mark(cache)[VARIABLE]}".encode()
    killed: set[int] = set()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (
        found := [
            int(name) for name in os.listdir("/proc") if name.isdigit() and _has(name, wanted)
        ]
    ) != []:
        killed |= {pid for pid in found if _kill(pid, wanted)}
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    return len(killed)


def _has(pid: str | int, wanted: bytes) -> bool:
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.getuid():
            return False
        with open(f"/proc/{pid}/environ", "rb") as file:
            return wanted in file.read().split(b"\0")
    except OSError:
        return False


def _kill(pid: int, wanted: bytes) -> bool:
    """Kill through a descriptor: the process that was looked at is the one that is killed."""
    with contextlib.suppress(OSError):
        descriptor = os.pidfd_open(pid)
        try:
            if _has(pid, wanted):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                return True
        finally:
            os.close(descriptor)
    return False

"""All processes of one job: its session, and what carries its mark in the environment."""

from __future__ import annotations

import contextlib
import os
import signal
import time

MARK = "WARMCC_JOB"
_PATIENCE_SECONDS = 5.0
_PAGE = os.sysconf("SC_PAGE_SIZE")


def of(session: int, mark: str) -> set[int]:
    """The processes that live. Raises OSError when they cannot be listed."""
    wanted = f"{MARK}={mark}".encode()
    found = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = _read(f"/proc/{entry}/stat").rpartition(b")")[2].split()
                ours = int(fields[3]) == session
                if fields[0] not in (b"Z", b"X") and (
                    ours or wanted in _read(f"/proc/{entry}/environ").split(b"\0")
                ):
                    found.add(int(entry))
    return found


def memory(pids: set[int]) -> int:
    """Bytes that they hold in memory, each with what it shares."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            total += int(_read(f"/proc/{pid}/statm").split()[1]) * _PAGE
    return total


def kill(session: int, mark: str) -> None:
    """Kill all; none is left when this returns, unless the kernel or a setuid program keeps it.
    They are stopped first, so that what forks without end does not outrun its killer."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    stopped: set[int] = set()
    while (found := of(session, mark)) and time.monotonic() < deadline:
        new = found - stopped
        for pid in new or found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGSTOP if new else signal.SIGKILL)
        stopped |= new
        if not new:
            time.sleep(0.002)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()

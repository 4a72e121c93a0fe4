"""Processes of a daemon that a test kills, found by what they run."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil

from tests.support.daemons import Daemon

LINKERS = ("ld", "ld.bfd", "ld.mold", "mold", "ld.lld", "lld", "ld.gold", "collect2")


def runs(process: psutil.Process, program: str) -> bool:
    """Whether a process is the program or script of this name (and not one that only mentions
    it).
    """
    with contextlib.suppress(psutil.Error):
        return program in [os.path.basename(word) for word in process.cmdline()]
    return False


def met(daemon: Daemon, victim: str) -> list[int]:
    """Processes of the daemon's that run a program, found fast: a linker lives for 50 ms."""
    if victim.endswith(".py"):
        return [one.pid for one in psutil.Process(daemon.pid).children() if runs(one, victim)]
    names = [f"{name}\n" for name in (LINKERS if victim == "linker" else [victim])]
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            named = Path(f"/proc/{int(entry)}/comm").read_text() in names
            if named and os.readlink(f"/proc/{entry}/cwd").startswith(str(daemon.folder)):
                found.append(int(entry))
    return found

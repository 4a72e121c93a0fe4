"""A daemon whose calls to the system fail when a test says so (inject.c)."""

from __future__ import annotations

import errno
import mmap
import struct
import subprocess
from pathlib import Path

from tests.daemons import Daemon

KINDS = {"write": 1, "fsync": 2, "rename": 3, "open": 4}
_LAYOUT = struct.Struct("iillll")


class Injector:
    """The control file of one daemon; ``environment`` is what the daemon needs."""

    def __init__(self, daemon: Daemon) -> None:
        library, control = daemon.folder / "inject.so", daemon.folder / "control"
        source = Path(__file__).with_name("inject.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", str(source), "-o", str(library), "-ldl"], check=True)
        control.write_bytes(bytes(_LAYOUT.size))
        with open(control, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), _LAYOUT.size)
        self.environment = {
            "LD_PRELOAD": str(library),
            "INJECT_CONTROL": str(control),
            "INJECT_BELOW": str(daemon.cache_dir),
        }

    def arm(self, kind: str, error: str, call: int) -> None:
        """Have the ``call``-th call of a kind, from now on, fail with an errno."""
        self._map[:] = _LAYOUT.pack(KINDS[kind], getattr(errno, error), call, 0, 0, 0)

    def disarm(self) -> tuple[int, bool]:
        """How many calls were made since, and whether one failed."""
        _, _, _, calls, failed, _ = _LAYOUT.unpack(self._map[:])
        self._map[:] = bytes(_LAYOUT.size)
        return calls, bool(failed)

    def shift(self, seconds: int) -> None:
        """Have the daemon's clock of the wall stand this far off."""
        self._map[:] = _LAYOUT.pack(0, 0, 0, 0, 0, seconds)

    def close(self) -> None:
        self._map.close()

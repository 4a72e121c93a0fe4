"""A daemon whose clock of the wall a test can set (clock.c)."""

from __future__ import annotations

import mmap
import struct
import subprocess
from pathlib import Path

_LAYOUT = struct.Struct("l")


class Clock:
    """The control file of one daemon; ``environment`` is what the daemon needs."""

    def __init__(self, folder: Path) -> None:
        library, control = folder / "clock.so", folder / "clock"
        source = Path(__file__).with_name("clock.c")
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", str(source), "-o", str(library), "-ldl"], check=True
        )
        control.write_bytes(bytes(_LAYOUT.size))
        with open(control, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), _LAYOUT.size)
        self.environment = {"LD_PRELOAD": str(library), "CLOCK_CONTROL": str(control)}

    def shift(self, seconds: int) -> None:
        """Have the clock stand this far ahead of the true one."""
        self._map[:] = _LAYOUT.pack(seconds)

    def close(self) -> None:
        self._map.close()

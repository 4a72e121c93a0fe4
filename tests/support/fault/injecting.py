"""Calls to the system that fail when a test says so (inject.c), in a daemon or in another
process.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import subprocess
from collections import Counter
from pathlib import Path

KINDS = (
    "write", "fsync", "rename", "open", "read", "mkdir", "unlink", "mmap", "fork", "exec", "thread",
    "pipe", "accept", "connect", "receive", "send", "chdir", "dup", "pidfd",
)  # fmt: skip
# What a machine that is full, broken or out of something answers.
ERRORS = {
    "write": ("ENOSPC", "EIO", "EDQUOT"), "fsync": ("EIO", "ENOSPC"),
    "rename": ("EACCES", "ENOSPC", "EIO"), "open": ("EMFILE", "ENFILE", "EACCES", "EIO"),
    "read": ("EIO", "ENOMEM"), "mkdir": ("ENOSPC", "EACCES", "EIO"),
    "unlink": ("EACCES", "EIO", "EBUSY"), "mmap": ("ENOMEM",), "fork": ("EAGAIN", "ENOMEM"),
    "exec": ("ENOMEM", "ENOENT", "EACCES"), "thread": ("EAGAIN",), "pipe": ("EMFILE", "ENFILE"),
    "accept": ("ECONNABORTED", "EINTR", "ENFILE"), "connect": ("ECONNREFUSED", "EAGAIN", "EMFILE"),
    "receive": ("ECONNRESET", "ENOMEM"), "send": ("EPIPE", "ENOBUFS"),
    "chdir": ("ENOENT", "EACCES"), "dup": ("EMFILE", "EBUSY"), "pidfd": ("EMFILE", "ENOMEM"),
}  # fmt: skip
_MOST = 4  # errors of a kind


class _Control(ctypes.Structure):
    """``struct control`` of inject.c."""

    _fields_ = (
        *((name, ctypes.c_long) for name in ("left", "chance", "seed", "kinds", "shift", "strays")),
        ("errors", ctypes.c_long * _MOST * len(KINDS)),
        ("calls", ctypes.c_long * len(KINDS)),
        ("failed", ctypes.c_long * len(KINDS)),
    )


class Injector:
    """The control block of one process, in ``folder``; ``environment`` is what the process needs.
    Calls about files fail for those below ``below``."""

    def __init__(self, folder: Path, below: Path | str) -> None:
        self.library, control = folder / "inject.so", folder / "control"
        source = Path(__file__).with_name("inject.c")
        words = ["cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-O1"]
        subprocess.run([*words, str(source), "-o", str(self.library), "-ldl"], check=True)
        control.write_bytes(bytes(ctypes.sizeof(_Control)))
        with open(control, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), ctypes.sizeof(_Control))
        self._control = _Control.from_buffer(self._map)
        self.environment = {
            "LD_PRELOAD": str(self.library),
            "INJECT_CONTROL": str(control),
            "INJECT_BELOW": str(below),
        }

    def arm(self, kind: str, error: str, call: int) -> None:
        """Have the ``call``-th call of a kind, from now on, fail with an errno."""
        self._reset({kind: (error,)})
        self._control.left = call
        self._control.kinds = 1 << KINDS.index(kind)

    def arm_random(self, kinds: tuple[str, ...], seed: int, chance: float) -> None:
        """Have each call of these kinds fail with this probability; ``seed`` says which ones."""
        self._reset({kind: ERRORS[kind] for kind in kinds})
        self._control.chance, self._control.seed = int(chance * 1e6), seed
        self._control.kinds = sum(1 << KINDS.index(kind) for kind in kinds)

    def _reset(self, errors: dict[str, tuple[str, ...]]) -> None:
        self.disarm()
        for kind, names in errors.items():
            for place, name in enumerate(names):
                self._control.errors[KINDS.index(kind)][place] = getattr(errno, name)

    def disarm(self) -> tuple[Counter[str], Counter[str]]:
        """How many calls of each kind were made since, and how many of them failed."""
        self._control.kinds = 0
        found = [
            Counter({kind: count[place] for place, kind in enumerate(KINDS)})
            for count in self._counts()
        ]
        ctypes.memset(ctypes.addressof(self._control), 0, _Control.strays.offset)
        ctypes.memset(ctypes.addressof(self._control) + _Control.errors.offset, 0, _rest())
        return +found[0], +found[1]

    def _counts(self) -> tuple[list[int], list[int]]:
        return list(self._control.calls), list(self._control.failed)

    @property
    def strays(self) -> int:
        """Signals to process ids below 1 that were not sent."""
        return int(self._control.strays)

    def shift(self, seconds: int) -> None:
        """Have the clock of the wall stand this far off."""
        self._control.shift = seconds

    def close(self) -> None:
        del self._control
        self._map.close()


def counted(found: Counter[str]) -> str:
    """A count with its parts, the largest first."""
    return (
        f"{found.total()} ({', '.join(f'{count} {what}' for what, count in found.most_common())})"
    )


def _rest() -> int:
    """Bytes behind ``strays``."""
    return ctypes.sizeof(_Control) - int(_Control.errors.offset)

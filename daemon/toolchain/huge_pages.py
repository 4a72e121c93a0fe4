"""Compilers with their memory in huge pages (``native/hugepages.c``).

What g++ and nvcc's front ends know of torch's headers is spread over a gigabyte or two, so that
much of their time goes into finding pages. Where the kernel gives huge pages to programs that ask
for them, as most distributions have it, a small library that is preloaded asks; only time depends
on it. How long the kernel takes to give one is measured: in a virtual machine that gives free
memory back to its host it may be more than what a compiler saves.
"""

from __future__ import annotations

import logging
import mmap
import os
import re
import statistics
import subprocess
import threading
import time
from pathlib import Path

from warmcc import digest
from warmcc.daemon import native
from warmcc.daemon.system import resources

log = logging.getLogger(__name__)

FOLDER = "hugepages"
_SOURCE = native.path("hugepages.c")
_MODE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_MALLOC = "glibc.malloc.hugetlb"
_SECONDS = 60.0
_SIZE = 2 << 20  # of a huge page
_PROBED = 256  # as what became free a moment ago is given first, and quickly
_LONG = 2e-3  # seconds: as many small pages take 0.8 ms, and with one a compiler saves some 1.5 ms
_SLOW = 8  # so many pages decide
_AFTER_FAST, _AFTER_SLOW = 300.0, 3600.0  # when to measure again


class Without(Exception):
    """Why compilers go without."""


class HugePages:
    """Of one daemon. ``reason`` says why compilers go without; it is empty where they do not."""

    def __init__(self, folder: Path, *, wanted: bool) -> None:
        self._library = Path()
        self._is_possible = False
        self._next = 0.0  # when it is measured again
        self.reason = ""
        try:
            _check(_MODE, wanted=wanted)
            self._library = _made(folder)
            self._is_possible = True
        except Without as reason:
            self._go_without(str(reason))
        else:
            self._measure()

    def _go_without(self, reason: str) -> None:
        if reason and not self.reason:
            log.info("compilers use the kernel's own choice of pages: %s", reason)
        self.reason = reason

    def _measure(self) -> None:
        reason = ""
        try:
            if took := _slow_ones():
                reason = f"this kernel takes {statistics.median(took) * 1e3:.1f} ms to give one"
        except (OSError, ValueError) as error:
            reason = f"this kernel gives none: {error}"
        self._go_without(reason)
        self._next = time.monotonic() + (_AFTER_SLOW if reason else _AFTER_FAST)

    def _measure_now_and_then(self) -> None:
        if self._is_possible and time.monotonic() > self._next:
            self._next = time.monotonic() + _AFTER_FAST
            threading.Thread(target=self._measure, daemon=True).start()

    def added_to(self, environment: dict[str, str]) -> dict[str, str]:
        """Variables of a command, with those that give it huge pages. One that preloads something
        itself goes without."""
        self._measure_now_and_then()
        if self.reason or "LD_PRELOAD" in environment or not self._library.exists():
            return environment
        return {**environment, **_variables(self._library, environment.get("GLIBC_TUNABLES", ""))}


def _variables(library: Path, tunables: str) -> dict[str, str]:
    """What has the C library load it, and its malloc do the same."""
    if _MALLOC not in tunables:
        tunables = ":".join(filter(None, [tunables, f"{_MALLOC}=1"]))
    return {"LD_PRELOAD": str(library), "GLIBC_TUNABLES": tunables}


def _check(mode: Path, *, wanted: bool) -> None:
    """Raises Without where nothing has to be done, or can be."""
    if not wanted:
        raise Without("huge_pages is off")
    try:
        chosen = re.search(r"\[(\w+)\]", mode.read_text(encoding="ascii"))
    except (OSError, ValueError):
        raise Without("this kernel has none") from None
    if chosen is None or chosen[1] != "madvise":
        said = {"always": "gives huge pages to all", "never": "has huge pages switched off"}
        raise Without(f"the kernel {said.get(chosen[1] if chosen else '', 'says nothing')}")


def _slow_ones() -> list[float]:
    """The seconds that the kernel took to give huge pages, where it takes long."""
    slow: list[float] = []
    room = min(resources.available_memory() // 16, resources.memory_limit() // 64)
    pages = max(_SLOW, min(_PROBED, room // _SIZE))
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    with mmap.mmap(-1, pages * _SIZE, flags=flags) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for start in range(0, len(memory), _SIZE):
            began = time.perf_counter()
            memory[start] = 1
            if (took := time.perf_counter() - began) > _LONG:
                slow.append(took)
            if len(slow) == _SLOW:
                return slow
    return []


def _made(folder: Path) -> Path:
    """The library, compiled with the daemon's own compiler, tried, and kept by content.
    Raises Without."""
    place = folder / f"hugepages-{digest.of_file(_SOURCE)[:16]}.so"
    if re.search(r"[\s:]", str(place)):
        raise Without(f"LD_PRELOAD cannot name {place}")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not place.exists():
            draft = place.with_suffix(f".{os.getpid()}")
            try:
                _run(["cc", "-O2", "-shared", "-fPIC", str(_SOURCE), "-o", str(draft)], {})
                draft.rename(place)
            finally:
                draft.unlink(missing_ok=True)
        said = _run(["cc", "--version"], _variables(place, ""))
        if said != _run(["cc", "--version"], {}):
            raise Without(f"with it a program says: {said.strip()[-300:]}")
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stdout", None) or str(error)
        raise Without(f"the library does not work: {said.strip()[-300:]}") from error
    return place


def _run(words: list[str], variables: dict[str, str]) -> str:
    """What a program prints. Raises OSError, subprocess.SubprocessError."""
    return subprocess.run(
        words, env={**os.environ, **variables}, check=True, timeout=_SECONDS, text=True,
        errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ).stdout  # fmt: skip

"""The processes below one process, as the kernel's tables show them every few milliseconds.

Nothing is put in front of a compiler, so a build runs as it always does. What is seen of a process
is exact to one look: its start, its end, its time on processors, and its largest memory. A process
that is shorter than that may not be seen at all; what all of them took together is the kernel's own
count.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

LOOK_SECONDS = 0.005
_SCAN_SECONDS = 0.03  # where all of /proc has to be read at each look
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MOST_WORDS = 60
_SHELLS = ("sh", "bash", "dash")


class Process(msgspec.Struct):
    """``start`` and ``end`` are seconds of the monotonic clock, ``user`` and ``system`` seconds of
    processors, ``memory`` bytes that were resident at most; ``words`` are the first of its
    command."""

    pid: int
    parent: int
    name: str
    words: list[str]
    start: float
    end: float
    user: float = 0.0
    system: float = 0.0
    memory: int = 0


@dataclass
class _Stat:
    parent: int
    name: str
    state: str
    user: float
    system: float
    started: float
    memory: int
    image: bytes  # where the stack begins, which each exec changes


def _stat(pid: int) -> _Stat | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    name, _, rest = text.partition(b"(")[2].rpartition(b") ")
    row = rest.split()
    return _Stat(
        int(row[1]), name.decode(errors="replace"), row[0].decode(), int(row[11]) / _TICK,
        int(row[12]) / _TICK, int(row[19]) / _TICK, int(row[21]) * _PAGE, row[25],
    )  # fmt: skip


def _words(pid: int) -> list[str]:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        return [word.decode(errors="replace") for word in file.read(1 << 16).split(b"\0")[:-1]]
    return []


class Watcher:
    """Looks at the processes below ``root``; ``look`` is called as often as its caller can."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._since_boot = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
        self._alive: dict[int, Process] = {}
        self._images: dict[int, tuple[str, bytes]] = {}  # what each exec changes
        self.ended: list[Process] = []
        self._lists_children = os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
        self.seconds = LOOK_SECONDS if self._lists_children else _SCAN_SECONDS

    @property
    def alive(self) -> list[Process]:
        """Those that the last look has seen."""
        return list(self._alive.values())

    def look(self) -> None:
        """Write down what there is now."""
        now = time.monotonic()
        seen = set()
        for pid in self.below():
            stat = _stat(pid)
            if stat is None or stat.state in "ZX":
                if stat is not None and pid in self._alive:
                    self._update(self._alive[pid], stat)
                continue
            seen.add(pid)
            self._update(self._process(pid, stat, now), stat)
        for pid in self._alive.keys() - seen:
            one = self._alive.pop(pid)
            one.end = now
            self.ended.append(one)

    def _process(self, pid: int, stat: _Stat, now: float) -> Process:
        found = self._alive.get(pid)
        if found is None:
            start = min(now, stat.started - self._since_boot + 0.5 / _TICK)
            found = self._alive[pid] = Process(pid, stat.parent, stat.name, [], start, now)
            self._images.pop(pid, None)
        image = (stat.name, stat.image)
        if self._images.get(pid) != image and stat.memory:  # one that is ending has none
            self._images[pid] = image
            found.memory = 0  # what it had before was its parent's, of which it is a copy
            words = _words(pid)
            if words and (os.path.basename(words[0]) not in _SHELLS or not found.words):
                found.words = words[:_MOST_WORDS]
                found.name = os.path.basename(words[0])
        return found

    @staticmethod
    def _update(one: Process, stat: _Stat) -> None:
        one.end = time.monotonic()
        one.user, one.system = max(one.user, stat.user), max(one.system, stat.system)
        one.memory = max(one.memory, stat.memory)

    def below(self) -> list[int]:
        """The processes below the root."""
        if not self._lists_children:
            return self._scanned()
        found: list[int] = []
        open_ones = [self._root]
        while open_ones:
            pid = open_ones.pop()
            try:
                tasks = os.listdir(f"/proc/{pid}/task")
            except OSError:
                continue
            for task in tasks:
                with (
                    contextlib.suppress(OSError),
                    open(f"/proc/{pid}/task/{task}/children", "rb") as file,
                ):
                    children = [int(word) for word in file.read().split()]
                    found += children
                    open_ones += children
        return found

    def _scanned(self) -> list[int]:
        """The same for a kernel that does not list children."""
        parents: dict[int, int] = {}
        for name in os.listdir("/proc"):
            if name.isdigit() and (stat := _stat(int(name))) is not None:
                parents[int(name)] = stat.parent
        found = [self._root]
        for pid in found:
            found += [child for child, parent in parents.items() if parent == pid]
        return found[1:]


def end(root: int) -> None:
    """Kill a process and all below it, also those in groups of their own, as ninja's are. They are
    stopped first, so that none starts another one meanwhile."""
    watcher = Watcher(root)
    stopped: set[int] = set()
    while new := {root, *watcher.below()} - stopped:
        for pid in new:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGSTOP)
        stopped |= new
    for pid in stopped:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def run(
    words: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float
) -> tuple[int, str]:
    """Run a command to its end; its exit status, and all that it printed. Whatever interrupts that
    ends the command with all that it started. Raises OSError, subprocess.TimeoutExpired."""
    child = subprocess.Popen(
        words, cwd=folder, env=dict(environment), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )  # fmt: skip
    try:
        output, _ = child.communicate(timeout=seconds)
    except BaseException:
        end(child.pid)
        child.wait()
        if child.stdout is not None:
            child.stdout.close()
        raise
    return child.returncode, output


def covered(spans: list[tuple[float, float]], start: float, end: float) -> float:
    """How much of the time between two moments at least one span covers.

    >>> covered([(0, 2), (1, 3), (5, 9)], 0, 6)
    4.0
    """
    total, reached = 0.0, start
    for first, last in sorted(spans):
        first, last = max(first, reached), min(last, end)
        if last > first:
            total += last - first
            reached = last
    return total

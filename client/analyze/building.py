"""Run stock's build of a request once, and measure it without standing in its way."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from warmcc.client.analyze.report import Build, Phase, Step
from warmcc.client.stock import replay
from warmcc.client.stock.processes import Process, Watcher, covered, end
from warmcc.errors import RequestError
from warmcc.request import Request

_SECONDS = 3600.0
STARTING, IMPORTING, BEFORE, NINJA, AFTER, ENDING = PHASES = (
    "Python starts", "import torch", "torch before ninja", "ninja and the compilers",
    "import of the module", "Python ends",
)  # fmt: skip
_MARKS = ("started", "imported", "ninja", "built", "returned")


def build(request: Request, folder: Path) -> Build:
    """Build a request in an empty folder as stock does. Raises RequestError, OSError."""
    with tempfile.TemporaryFile() as output:
        began = time.monotonic()
        child = subprocess.Popen(
            replay.command(request, folder, "build"), cwd=folder, stdin=subprocess.DEVNULL,
            stdout=output, stderr=output, env=replay.environment(request),
        )  # fmt: skip
        watcher = Watcher(child.pid)
        try:
            used = _watched(child, watcher, began)
        except BaseException:
            end(child.pid)
            child.wait()
            raise
        ended = time.monotonic()
        output.seek(0)
        said = output.read().decode(errors="replace")
    watcher.look()
    marks = replay.answer(folder, said)["marks"]
    if any(name not in marks for name in _MARKS):
        raise RequestError("stock torch compiled nothing: there is nothing to measure")
    return _report(marks, began, ended, used, watcher.ended, folder)


def _watched(child: subprocess.Popen[bytes], watcher: Watcher, began: float) -> Any:
    """Look until it ends; what the kernel counted for it and all that it waited for. Raises
    RequestError."""
    while True:
        pid, status, used = os.wait4(child.pid, os.WNOHANG)
        if pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            return used
        if time.monotonic() - began > _SECONDS:
            raise RequestError(f"stock's build has not ended after {_SECONDS:g} s")
        watcher.look()
        time.sleep(watcher.seconds)


def _report(
    marks: dict[str, Any], began: float, ended: float, used: Any, processes: list[Process],
    folder: Path,
) -> Build:  # fmt: skip
    moments = [began, *(float(marks[name]) for name in _MARKS), ended]
    phases = [
        Phase(name, start - began, end - began)
        for name, start, end in zip(PHASES, moments, moments[1:], strict=False)
    ]
    of_ninja = [one for one in processes if one.name == "ninja"]
    ninja = of_ninja[0].start if of_ninja else moments[3]
    steps = [
        Step(output, ninja - began + start, ninja - began + end)
        for output, start, end in _log(folder / ".ninja_log")
    ]
    below = [one for one in processes if one.name != "ninja" and one.start >= moments[3] - 0.02]
    covers = covered([(one.start, one.end) for one in below], moments[3], moments[4])
    itself = moments[4] - moments[3] - covers
    for one in processes:
        one.start, one.end = max(0.0, one.start - began), one.end - began
    # What was seen of them, of what the kernel counted for ninja and its children
    counted = sum(marks["children"])
    seen = sum(one.user + one.system for one in processes if one.start >= phases[3].start - 0.02)
    wall = ended - began
    return Build(
        wall, used.ru_utime, used.ru_stime, max((one.memory for one in below), default=0), phases,
        sorted(steps, key=lambda one: one.start), sorted(processes, key=lambda one: one.start),
        itself, min(1.0, seen / counted) if counted else 1.0, 1 - itself / wall,
    )  # fmt: skip


def _log(path: Path) -> list[tuple[str, float, float]]:
    """Outputs in ninja's log with their start and end. Raises OSError."""
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        row = line.split("\t")
        if len(row) >= 4 and row[0].isdigit():
            found.append((row[3], int(row[0]) / 1000, int(row[1]) / 1000))
    return found

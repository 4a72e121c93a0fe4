"""Progress of a build: stock's verbose output, or a line on a terminal that is erased again.
Commands are numbered as ninja numbers them, in the form of NINJA_STATUS."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from typing import Any

from warmcc.protocol import Built, Progress
from warmcc.request import Request

_QUICK_SECONDS = 1.0  # a build that is done by then shows nothing
_NUMBER = re.compile(r"^\[(\d+)/(\d+)\] ", re.M)
_PLACEHOLDER = re.compile(r"%(.)", re.S)


def write(text: str) -> None:
    """Write to file descriptor 1, as stock's compilers do: tools look for the commands there.

    A closed descriptor is no reason for a build to fail.
    """
    data = text.encode("utf-8", "replace")
    with contextlib.suppress(OSError, ValueError):
        if sys.stdout is not None:
            sys.stdout.flush()
        while data:
            data = data[os.write(1, data) :]


def ninja_status(form: str, done: int, total: int, seconds: float) -> str:
    """NINJA_STATUS of a command, which is the last of ``done`` by now.
    The daemon does not say which others run: ``%s`` and ``%f`` are the same, and ``%r`` is 1.

    >>> ninja_status("[%f/%t %p %es] ", 1, 4, 2.5)
    '[1/4  25% 2.500s] '
    """
    rate = f"{done / seconds:.1f}" if seconds > 0 else "?"
    values = {
        "s": done, "f": done, "t": total, "r": 1, "u": max(0, total - done), "o": rate, "c": rate,
        "p": f"{100 * done // max(total, 1):3d}%", "e": f"{seconds:.3f}", "%": "%",
        "w": f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}",
    }  # fmt: skip
    return _PLACEHOLDER.sub(lambda match: str(values.get(match[1], match[0])), form)


class Display:
    """Shows one request's build; use as a context manager around it."""

    def __init__(self, request: Request) -> None:
        self._name = request.module_name
        self._began = time.monotonic()
        self._status: Any = None
        self._wanted = (
            not request.verbose
            and sys.stderr is not None
            and sys.stderr.isatty()
            and os.environ.get("TERM") != "dumb"
            and threading.current_thread()
            is threading.main_thread()  # threads would overwrite each other
        )

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def output(self, text: str) -> None:
        if (form := os.environ.get("NINJA_STATUS")) is not None:
            seconds = time.monotonic() - self._began
            text = _NUMBER.sub(
                lambda match: ninja_status(form, int(match[1]), int(match[2]), seconds), text
            )
        write(text)

    def progress(self, progress: Progress) -> None:
        if not self._wanted or progress.seconds < _QUICK_SECONDS:
            return
        text = f"{self._name}: {progress.phase}"
        if progress.total > 1:
            text += f" {progress.done}/{progress.total}"
        text += f", {progress.seconds:.0f} s"
        if self._status is None:
            from rich.console import Console
            from rich.markup import escape

            self._escape = escape
            self._status = Console(stderr=True).status(escape(text))
            self._status.start()
        else:
            self._status.update(self._escape(text))


def show_commands(name: str, built: Built) -> None:
    """For ``verbose`` where nothing ran: what made the artifact, as such."""
    if built.outcome == "hit":
        lines = [f"warmcc: hit: {name} was built before, nothing was compiled. Its build commands:"]
        lines += [f"[reused] {command}" for command in built.commands]
        write("\n".join([*lines, f"warmcc: {built.path}", ""]))

"""What a person sees while something is built: stock's verbose output, or a line on a terminal that goes away again."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from warmcc.protocol import Built, Progress
from warmcc.request import Request


def _write(text: str) -> None:
    """To file descriptor 1, as stock's compilers do: tools look for the commands there."""
    sys.stdout.flush()
    data = text.encode("utf-8", "replace")
    while data:
        data = data[os.write(1, data) :]


class Display:
    """Shows one request's build; use as a context manager around it."""

    def __init__(self, request: Request) -> None:
        self._name = request.module_name
        self._terminal = not request.verbose and sys.stderr is not None and sys.stderr.isatty()
        self._status: Any = None
        self._main = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def output(self, text: str) -> None:
        _write(text)

    def progress(self, progress: Progress) -> None:
        """The daemon says something once a second, so that a quick build shows nothing."""
        if not self._terminal or not self._main:
            return
        text = f"{self._name}: {progress.phase}"
        if progress.total > 1:
            text += f" {progress.done}/{progress.total}"
        text += f", {progress.seconds:.0f} s"
        if self._status is None:
            from rich.console import Console

            self._status = Console(stderr=True).status(text)
            self._status.start()
        else:
            self._status.update(text)

    @staticmethod
    def commands(built: Built) -> None:
        """On a hit nothing ran: show what made the artifact, as such."""
        if built.outcome == "hit":
            _write("".join(f"[reused] {command}\n" for command in built.commands) + f"warmcc: hit, {built.path}\n")

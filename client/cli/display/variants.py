"""How far a run of ``warmcc prebuild`` is: a bar on a terminal, or a line for each variant."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from warmcc.client.cli.display.output import duration, talk

if TYPE_CHECKING:
    from warmcc.client.prebuild.api import Progress


def choose(name: str, total: int) -> View:
    """The view for where standard error goes."""
    if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return Bar(name, total)
    return View(name, total)


class View:
    """Plain lines. Use as a context manager."""

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total = name, total

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, progress: Progress) -> None:
        """A variant has ended."""
        talk(f"{progress.done}/{progress.total} {progress.how:<6} {progress.key}{_times(progress)}")


class Bar(View):
    """One line, with a bar, that is drawn again after each variant; failures stay above it."""

    def __init__(self, name: str, total: int) -> None:
        super().__init__(name, total)
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False)

    def __enter__(self) -> View:
        self._live.start()
        self._draw(0, Text("starting", style="dim"))
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, progress: Progress) -> None:
        if progress.how == "failed":
            self._console.print(Text(f"failed {progress.key}", style="red"))
        self._draw(progress.done, Text(_times(progress).lstrip(", "), style="dim"))

    def _draw(self, done: int, text: Text) -> None:
        row = Table.grid(padding=(0, 1))
        row.add_row(
            Text(self.name, style="bold"), ProgressBar(self.total, done, width=30),
            f"{done}/{self.total}", text,
        )  # fmt: skip
        self._live.update(row, refresh=True)


def _times(progress: Progress) -> str:
    """Rate, time left and failures."""
    told = ""
    if progress.left is not None:
        rate = 60 * (progress.compiled + progress.failed) / max(progress.seconds, 1e-3)
        told = f", {rate:.1f} a minute, {duration(progress.left)} left"
    return told + (f", {progress.failed} failed" if progress.failed else "")

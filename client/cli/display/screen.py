"""The screen of ``warmcc watch`` for a person at a terminal, drawn by rich."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import termios
import threading
import time
import tty
from collections import deque
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from warmcc.client.cli.display.views import Keys, Put, View, from_here
from warmcc.client.live.report.formats import place

if TYPE_CHECKING:
    from warmcc.client.live.jobs import Ran
    from warmcc.client.live.loop import Event
    from warmcc.client.live.recipe import Recipe

_HELP = "r rebuild · c command · o full report · q quit"
_COLOURS = {"fatal error": "red", "error": "red", "warning": "yellow", "note": "blue"}
_LINES_OF_OUTPUT = 200


class Screen(View):
    """The state of the build, times of its steps, the compiler's output and the program's."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        self._console = Console()
        self._live = Live(console=self._console, auto_refresh=False, screen=False, transient=False)
        self._state = Text("starting", style="dim")
        self._steps: dict[str, float] = {}
        self._before: dict[str, float] = {}
        self._error: Exception | None = None
        self._output: deque[str] = deque(maxlen=_LINES_OF_OUTPUT)
        self._ran: Text | None = None
        self._commands: list[str] = []
        self._shows_command = False
        self._terminal: list[Any] | None = None

    def __enter__(self) -> View:
        self._terminal = termios.tcgetattr(sys.stdin)
        tty.setcbreak(sys.stdin)
        self._live.start()
        self._draw()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        if self._terminal is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._terminal)

    # ------------------------------------------------------------------ keys

    def keys(self, actions: Keys, put: Put) -> None:
        own = {"c": self._show_command, "o": self._open_report}

        def read() -> None:
            while (
                key := os.read(sys.stdin.fileno(), 1).decode(errors="ignore").lower()
            ) or key == "":
                if (action := {**own, **actions}.get(key)) is not None:
                    put(action)
                if key == "q":
                    return

        threading.Thread(target=read, daemon=True).start()

    def _show_command(self) -> None:
        self._shows_command = not self._shows_command
        self._draw()

    def _open_report(self) -> None:
        """All that the compiler and what ran have said, in the pager."""
        self._live.stop()
        parts = [str(self._error) if self._error is not None else "", "\n".join(self._output)]
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
            file.write("\n".join(filter(None, parts)) or "no output")
            file.flush()
            pager = shutil.which(os.environ.get("PAGER", "less")) or shutil.which("more") or "cat"
            if self._terminal is not None:
                termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._terminal)
            subprocess.run([pager, file.name], check=False)
            tty.setcbreak(sys.stdin)
        self._live.start()
        self._draw()

    # ------------------------------------------------------------------ what happens

    def event(self, event: Event) -> None:
        if event.kind in ("started", "progress"):
            self._state = Text(f"{event.phase or 'building'} …", style="yellow")
        elif event.built is not None:
            built, self._error = event.built, None
            self._before, self._steps = self._steps or self._before, dict(built.steps)
            self._commands = built.commands
            told = "nothing to compile" if built.outcome == "hit" else "built"
            self._state = Text(f"{told} in {built.seconds:.2f} s", style="bold green")
        elif event.kind == "failed":
            self._error, self._ran = event.error, None
            self._state = Text("does not build", style="bold red")
        elif event.kind == "away":
            self._state = Text(f"waiting for the daemon: {event.error}", style="magenta")
        self._draw()

    def running(self, command: str) -> None:
        self._output.clear()
        self._ran = Text(f"running {command} …", style="yellow")
        self._draw()

    def output(self, line: str) -> None:
        self._output.append(line)
        self._draw()

    def ran(self, done: Ran) -> None:
        style = "green" if done.code == 0 else "red"
        self._ran = Text(
            f"{done.command}: exit code {done.code}, {done.seconds:.2f} s", style=style
        )
        self._draw()

    # ------------------------------------------------------------------ drawing

    def _draw(self) -> None:
        room = max(self._console.height - 8, 8)
        parts: list[Any] = [self._title()]
        if self._error is not None:
            parts.append(self._diagnostics(room))
        elif self._steps:
            parts.append(self._times())
        if self._shows_command:
            parts.append(Text("\n".join(self._commands) or "nothing has run yet", style="dim"))
        if self._ran is not None:
            parts += [self._ran, Text.from_ansi("\n".join(list(self._output)[-(room // 2) :]))]
        parts.append(Text(_HELP, style="dim"))
        self._live.update(Group(*parts), refresh=True)

    def _title(self) -> Text:
        files = ", ".join(os.path.relpath(path) for path in self.recipe.sources)
        title = Text.assemble((self.recipe.name, "bold"), (f"  {files}  ", "dim"), self._state)
        title.append(f"  {time.strftime('%H:%M:%S')}", style="dim")
        return title

    def _times(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column("step")
        table.add_column("seconds", justify="right")
        table.add_column("before", justify="right", style="dim")
        for name, seconds in self._steps.items():
            before = f"{self._before[name]:.2f}" if name in self._before else ""
            table.add_row(name, f"{seconds:.2f}", before)
        return table

    def _diagnostics(self, room: int) -> Text:
        """The compiler's text, coloured by what its lines begin with."""
        assert self._error is not None
        found = getattr(self._error, "diagnostics", ())
        known = {place(one).replace(f"{os.getcwd()}/", ""): _COLOURS[one.severity] for one in found}
        text = Text()
        rows = from_here(self._error).splitlines()
        for row in rows[:room]:
            style = next(
                (
                    colour
                    for start, colour in known.items()
                    if start and row.startswith(start.rstrip())
                ),
                "",
            )
            text.append(row + "\n", style=style)
        if len(rows) > room:
            text.append(f"… {len(rows) - room} more lines: press o\n", style="dim")
        return text

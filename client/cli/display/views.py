"""The output of ``warmcc watch``: lines for a pipe, JSON for an editor, or a screen.
The screen is in ``screen.py``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from warmcc.client.cli.display.output import talk
from warmcc.client.live.report.formats import as_data
from warmcc.client.live.report.readable import readable

if TYPE_CHECKING:
    from warmcc.client.live.jobs import Ran
    from warmcc.client.live.loop import Event
    from warmcc.client.live.recipe import Recipe

Keys = Mapping[str, Callable[[], None]]
Put = Callable[[Callable[[], None]], None]


def choose(recipe: Recipe, *, as_json: bool) -> View:
    """The view for where standard output goes."""
    if as_json:
        return JsonView(recipe)
    if sys.stdout.isatty() and sys.stdin.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        from warmcc.client.cli.display.screen import Screen

        return Screen(recipe)
    return View(recipe)


def steps_of(steps: Mapping[str, float]) -> str:
    """``plan 0.02, compile 0.31``: what took a hundredth of a second."""
    return ", ".join(f"{name} {seconds:.2f}" for name, seconds in steps.items() if seconds >= 0.005)


def from_here(error: Exception) -> str:
    """What a person reads of an error, with paths as seen from the working directory."""
    return readable(error).replace(f"{os.getcwd()}/", "")


class View:
    """Plain lines. Use as a context manager; all methods are called in one thread."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self._away = ""

    def __enter__(self) -> View:
        talk(f"watching {', '.join(map(os.path.relpath, self.recipe.sources))}; Ctrl-C ends")
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def keys(self, actions: Keys, put: Put) -> None:
        """What a person may press. Lines have no keys."""

    def event(self, event: Event) -> None:
        """A build began, ended, or could not be made."""
        if event.kind == "built" and event.built is not None:
            self._away = ""
            steps = f" ({steps_of(event.built.steps)})" if event.built.steps else ""
            self._line(f"built in {event.built.seconds:.2f} s, {event.built.outcome}{steps}")
        elif event.kind == "failed" and event.error is not None:
            self._line(f"does not build\n{from_here(event.error)}")
        elif event.kind == "superseded":
            self._line("saved again; this build is discarded")
        elif event.kind == "away" and self._away != str(event.error):
            self._away = str(event.error)
            self._line(f"waiting for the daemon: {self._away}")

    def running(self, command: str) -> None:
        self._line(f"running {command}")

    def output(self, line: str) -> None:
        """One line of what runs."""
        print(line, flush=True)

    def ran(self, done: Ran) -> None:
        self._line(f"{done.command} ended with {done.code} after {done.seconds:.2f} s")

    def _line(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {self.recipe.name}: {text}", flush=True)


class JsonView(View):
    """One JSON object per line.
    Its ``event`` is started, progress, built, failed, superseded, away, running, output or ran."""

    def __enter__(self) -> View:
        self._say("watching", files=list(self.recipe.sources))
        return self

    def event(self, event: Event) -> None:
        if event.kind == "progress":
            self._say("progress", phase=event.phase)
        elif event.built is not None:
            built = event.built
            self._say(
                "built", path=built.path, outcome=built.outcome, seconds=built.seconds,
                steps=built.steps, files=list(built.files),
            )  # fmt: skip
        elif event.error is not None:
            self._say(
                event.kind, message=readable(event.error), diagnostics=as_data(event.diagnostics)
            )
        else:
            self._say(event.kind)

    def running(self, command: str) -> None:
        self._say("running", command=command)

    def output(self, line: str) -> None:
        self._say("output", text=line)

    def ran(self, done: Ran) -> None:
        self._say("ran", command=done.command, code=done.code, seconds=done.seconds)

    def _say(self, event: str, **more: Any) -> None:
        print(
            json.dumps({"event": event, "name": self.recipe.name, "time": time.time(), **more}),
            flush=True,
        )

"""``warmcc watch``: build whenever a file is saved, then run a command on the result."""

from __future__ import annotations

import argparse
import queue
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from warmcc.client.cli import recipes
from warmcc.client.cli.display.output import talk

if TYPE_CHECKING:
    from warmcc.client.cli.display.views import View
    from warmcc.client.live.jobs import JobRunner
    from warmcc.client.live.loop import Event
    from warmcc.client.live.recipe import Recipe


def add_watch(parser: argparse.ArgumentParser) -> None:
    recipes.add_arguments(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--run", metavar="'COMMAND …'", help="run a command on each new version")
    what.add_argument(
        "--call", metavar="MODULE:FUNCTION", help="call a Python function with the extension"
    )
    what.add_argument("--pytest", metavar="PATH", help="run tests on each new version")
    parser.add_argument(
        "--compile-commands", nargs="?", const="compile_commands.json", metavar="FILE",
        help="keep a compilation database for clangd up to date (default: compile_commands.json)",
    )  # fmt: skip


def cmd_watch(arguments: argparse.Namespace) -> int:
    from warmcc.client.cli.display.views import choose
    from warmcc.errors import RequestError

    try:
        recipe = recipes.recipe(arguments)
        watch = _Watch(recipe, arguments)
    except RequestError as error:
        talk(f"warmcc: {error}")
        return 2
    with choose(recipe, as_json=arguments.json) as view:
        return watch.run(view)


class _Watch:
    """Shows the events that the threads of loop and runner put into a queue."""

    def __init__(self, recipe: Recipe, arguments: argparse.Namespace) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._recipe = recipe
        self._view: View
        self._commands = arguments.compile_commands
        self._ended = False
        self._runner = self._make_runner(arguments)

    def _make_runner(self, arguments: argparse.Namespace) -> JobRunner | None:
        from warmcc.client.live import jobs

        def output(line: str) -> None:
            self._queue.put(lambda: self._view.output(line))

        def ran(done: jobs.Ran) -> None:
            self._queue.put(lambda: self._view.ran(done))

        if arguments.call:
            job: jobs.Job = jobs.Call(
                arguments.call, self._recipe.name, is_module=self._recipe.is_module()
            )
        elif arguments.pytest:
            job = jobs.Command([sys.executable, "-m", "pytest", "-q", arguments.pytest])
        elif arguments.run:
            job = jobs.Command.of(arguments.run)
        else:
            return None
        return jobs.JobRunner(job, output, ran)

    def run(self, view: View) -> int:
        from warmcc.client.live.loop import Loop

        self._view = view
        loop = Loop(self._recipe, None, lambda event: self._queue.put(lambda: self._event(event)))
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            loop.start()
            view.keys({"q": self._end, "r": loop.rebuild}, self._queue.put)
            while not self._ended:
                self._queue.get()()
        except KeyboardInterrupt:
            pass
        finally:
            signal.signal(signal.SIGTERM, before)
            loop.close()
            if self._runner is not None:
                self._runner.close()
        return 0

    def _end(self) -> None:
        self._ended = True

    def _event(self, event: Event) -> None:
        self._view.event(event)
        if event.built is None:
            return
        if self._commands:
            from warmcc.client.live import compile_commands

            try:
                compile_commands.write(self._commands, self._recipe, event.built)
            except (OSError, ValueError) as error:
                self._view.output(f"warmcc: {self._commands} was not written: {error}")
        if self._runner is not None:
            self._view.running(self._runner.job.name)
            self._runner.start(event.built)

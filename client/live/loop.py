"""The live loop: look at the files, build what is new, and say so.
One build at a time; the newest contents win.

A change while a build is under way cancels it. What does not build is reported once, and so is a
daemon that went away; the loop goes on either way.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from warmcc.client.connection.wire import Interrupted
from warmcc.client.live.build import build
from warmcc.client.live.contents import Contents
from warmcc.client.live.recipe import Recipe
from warmcc.client.live.watcher import Watcher
from warmcc.errors import CompileError, DaemonError
from warmcc.protocol import Built, Diagnostic, Progress

_STEADY_SECONDS = 0.008  # how long contents have to stay as they are
_PATIENCE_SECONDS = 0.25
RETRY_SECONDS = 2.0  # how often to ask for a daemon that is away


@dataclass(frozen=True)
class Event:
    """Something that happened to a live extension.

    ``started``: a build began. ``progress``: it is in ``phase``. ``built``: ``built`` is there, and
    in use when a module is loaded. ``failed``: ``error`` says why, with ``diagnostics`` if it was
    the compiler's; what was in use stays so. ``superseded``: the files changed meanwhile. ``away``:
    the daemon does not answer; it is asked again.
    """

    kind: Literal["started", "progress", "built", "failed", "superseded", "away"]
    phase: str = ""
    built: Built | None = None
    error: Exception | None = None

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        return self.error.diagnostics if isinstance(self.error, CompileError) else ()


OnEvent = Callable[[Event], None]


class Loop:
    """Watches in one thread and builds in another.
    The latter calls ``take`` (if any) with each good build, and ``tell`` with each event. An
    exception of ``take`` is a failure of that version."""

    def __init__(self, recipe: Recipe, take: Callable[[Built], None] | None, tell: OnEvent) -> None:
        self._recipe = recipe
        self._take = take
        self._told = tell
        self._watcher = Watcher()
        self._files: dict[str, str] = {}  # what the last good build has read, by digest
        self._state = threading.Condition()
        self._wanted = self._look()
        self._settled: Contents | None = None  # what was built last, well or not
        self._again = False
        self._closed = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        self._threads = [
            threading.Thread(target=target, name=f"warmcc live {recipe.name}", daemon=True)
            for target in (self._watch, self._work)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def rebuild(self) -> None:
        """Build even though nothing changed."""
        with self._state:
            self._again = True
            self._state.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until what is in the files now has been built, well or not.
        False when the time runs out."""
        now = self._look()
        self._watcher.wake()
        with self._state:
            return self._state.wait_for(
                lambda: self._closed or (self._settled == now and not self._again), timeout
            )

    def close(self) -> None:
        """Stop looking; a build under way is cancelled."""
        with self._state:
            if self._closed:
                return
            self._closed = True
            self._state.notify_all()
        self._interrupt()
        self._watcher.close()
        if threading.current_thread() not in self._threads:
            for thread in self._threads:
                if thread.ident is not None:
                    thread.join(5.0)
        for descriptor in (self._read, self._write):
            os.close(descriptor)

    # ------------------------------------------------------------------ looking

    def _look(self, before: Contents | None = None) -> Contents:
        return Contents.of(self._recipe.sources, self._files, before)

    def _watch(self) -> None:
        found = self._wanted
        while not self._closed:
            self._watcher.watch(found.files)
            self._watcher.wait()
            if (found := self._look(found)) == self._wanted:
                continue
            found = self._steady(found)
            with self._state:
                if found == self._wanted:
                    continue
                self._wanted = found
                # With the lock held: a build that begins with these contents must not be hit.
                self._interrupt()
                self._state.notify_all()

    def _steady(self, found: Contents) -> Contents:
        """The contents once they are complete: an empty or missing file is about to be written."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while not self._closed:
            time.sleep(_STEADY_SECONDS)
            found, before = self._look(found), found
            if (found == before and not found.unfinished()) or time.monotonic() > until:
                break
        return found

    def _interrupt(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._write, b"\0")

    # ------------------------------------------------------------------ building

    def _work(self) -> None:
        while True:
            with self._state:
                self._state.wait_for(
                    lambda: self._closed or self._again or self._settled != self._wanted
                )
                if self._closed:
                    return
                wanted, self._again = self._wanted, False
                with contextlib.suppress(BlockingIOError):
                    os.read(self._read, 4096)
            self._tell(Event("started"))
            if (settled := self._build(wanted)) is not None:
                with self._state:
                    if self._wanted == wanted:
                        self._wanted = settled  # with the headers that turned out to belong to it
                    self._settled = settled
                    self._state.notify_all()
                self._watcher.wake()

    def _build(self, wanted: Contents) -> Contents | None:
        """What there is a result of now, good or bad."""
        try:
            built = build(self._recipe, interrupt=self._read, on_progress=self._progress)
            wanted = wanted.as_built(built.files)
            self._files = built.files or self._files
            if self._take is not None:
                self._take(built)
        except Interrupted:
            self._tell(Event("superseded"))
            return None
        except DaemonError as error:
            self._tell(Event("away", error=error))
            with self._state:
                self._again = True
                self._state.wait_for(lambda: self._closed, RETRY_SECONDS)
            return None
        except Exception as error:
            self._tell(Event("failed", error=error))
        else:
            self._tell(Event("built", built=built))
        return wanted

    def _tell(self, event: Event) -> None:
        """An error of who listens is shown, and is not the end of the loop."""
        try:
            self._told(event)
        except Exception:
            traceback.print_exc()

    def _progress(self, progress: Progress) -> None:
        self._tell(Event("progress", phase=progress.phase))

"""A *flight*: one build under way, and who waits for it.
Requests with one key share one (``serve/flights.py``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from warmcc.daemon.build.timeline import Timeline
from warmcc.protocol import Built, Declined, Failed


class Phase(Enum):
    """What a build is doing; clients see it in ``Progress``."""

    QUEUED = "queued"
    PLANNING = "planning"
    COMPILING = "compiling"  # and linking


Answer = Built | Failed | Declined
Waiter = tuple[bytes, int]  # a client's ZeroMQ identity and its number for the request


@dataclass(eq=False)
class Flight:
    """One build under way.
    ``printed`` is what it has printed so far, for clients that join late."""

    key: str
    name: str
    started: float = field(default_factory=time.monotonic)
    phase: Phase = Phase.QUEUED
    done: int = 0
    total: int = 0
    waiters: dict[Waiter, bool] = field(default_factory=dict)  # → does it want the output?
    first: Waiter | None = None  # the one that it was started for
    client: int = 0  # the process id of that one
    publish: bool = False  # a client asked to share the result with all users
    alike: list[str] = field(default_factory=list)  # C++ sources that its client compiles with it
    printed: list[str] = field(default_factory=list)
    unsent: list[str] = field(default_factory=list)  # the part that no client was sent yet
    timeline: Timeline = field(default_factory=Timeline)
    way: str = ""
    stale: str = ""  # what had changed of known results
    inputs: dict[str, str] = field(default_factory=dict)  # the parts of its key, for reading
    on_output: Callable[[Flight, str], None] = lambda _flight, _text: None
    task: asyncio.Task[None] | None = None

    def begin(self, started: float) -> None:
        """Work begins; ``started`` is when it was taken up (monotonic)."""
        self.timeline = Timeline(started)

    def expect(self, total: int, done: int) -> None:
        """So many steps are to be done, and so many are."""
        self.total, self.done = total, done

    def mark(self) -> str:
        """What stands in front of the step that has just ended, as ninja writes it."""
        self.done += 1
        return f"[{self.done}/{self.total}] "

    def output(self, text: str) -> None:
        self.printed.append(text)
        self.on_output(self, text)

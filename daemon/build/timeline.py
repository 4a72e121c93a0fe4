"""When which step of a build began and ended."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from warmcc.record import Span


@dataclass
class Timeline:
    """Spans since ``began`` (monotonic seconds)."""

    began: float = field(default_factory=time.monotonic)
    spans: list[Span] = field(default_factory=list)

    @contextlib.contextmanager
    def span(self, step: str, name: str = "") -> Iterator[None]:
        """Note how long the body takes, whether it succeeds or not."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.add(step, name, started, time.monotonic())

    def add(self, step: str, name: str, started: float, ended: float) -> None:
        """Note a step by the monotonic times of its ends."""
        self.spans.append(
            Span(step, name or step, round(started - self.began, 4), round(ended - self.began, 4))
        )

    def steps(self) -> dict[str, float]:
        """Seconds in which at least one step of each kind ran."""
        found: dict[str, float] = {}
        until: dict[str, float] = {}
        for span in sorted(self.spans, key=lambda span: span.start):
            start = max(span.start, until.get(span.step, 0.0))
            found[span.step] = found.get(span.step, 0.0) + max(0.0, span.end - start)
            until[span.step] = max(until.get(span.step, 0.0), span.end)
        return {step: round(seconds, 4) for step, seconds in found.items()}

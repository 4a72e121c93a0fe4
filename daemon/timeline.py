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
        self.spans.append(Span(step, name or step, round(started - self.began, 4), round(ended - self.began, 4)))

    def steps(self) -> dict[str, float]:
        """Seconds from the first start to the last end of each kind of step."""
        found: dict[str, tuple[float, float]] = {}
        for span in self.spans:
            start, end = found.get(span.step, (span.start, span.end))
            found[span.step] = min(start, span.start), max(end, span.end)
        return {step: round(end - start, 4) for step, (start, end) in found.items()}

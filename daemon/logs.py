"""The daemon's two logs: lines for people on standard error, and the same with a record of each answered request as
JSON lines in a file that keeps its size.

Writing happens in a thread of its own, and a disk that is full loses lines, never a build.
"""

from __future__ import annotations

import logging
import logging.handlers
import queue
import sys
import time
from pathlib import Path

from warmcc import record
from warmcc.daemon.scheduler import Answer, Flight
from warmcc.protocol import Built, Failed
from warmcc.record import Answered, Outcome

_SIZE = 16 << 20  # bytes, twice: the file that is written and the one before
_answered = logging.getLogger("warmcc.answered")


class _Lines(logging.Formatter):
    def format(self, given: logging.LogRecord) -> str:
        line = record.Line(
            given.created, given.levelname.lower(), given.name, given.getMessage(), getattr(given, "answered", None)
        )
        return record.encode(line).decode()


class _File(logging.handlers.RotatingFileHandler):
    lost = 0

    def handleError(self, _record: logging.LogRecord) -> None:  # noqa: N802  (logging's name)
        self.lost += 1


class _Queue(logging.handlers.QueueHandler):
    def prepare(self, given: logging.LogRecord) -> logging.LogRecord:
        if given.exc_info and not given.exc_text:
            given.exc_text = logging.Formatter().formatException(given.exc_info)
            given.msg, given.args = f"{given.getMessage()}\n{given.exc_text}", None
        return given


def start(level: str, file: Path) -> logging.handlers.QueueListener:
    """Log from now on; ``stop`` of what is returned writes out what is left. Raises OSError."""
    people = logging.StreamHandler(sys.stderr)
    people.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    people.addFilter(lambda given: given.name != _answered.name)
    lines = _File(file, maxBytes=_SIZE, backupCount=1, encoding="utf-8", delay=True)
    lines.setFormatter(_Lines())
    root = logging.getLogger()
    root.setLevel(level.upper())
    _answered.setLevel(logging.INFO)
    waiting: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    root.handlers = [people, _Queue(waiting)]
    listener = logging.handlers.QueueListener(waiting, lines)
    listener.start()
    return listener


def answered(record: Answered) -> None:
    """Write down how a request ended."""
    reason = f": {record.reason}" if record.reason else ""
    _answered.info(
        "%s: %s in %.3f s%s", record.name, record.outcome, record.seconds, reason, extra={"answered": record}
    )


def landed(flight: Flight, answer: Answer | None, client: int) -> None:
    """Write down how a flight ended, None when nobody waited for it any more; ``client`` is who began it."""
    outcome: Outcome = "cancelled"
    reason = ""
    if isinstance(answer, Built):
        outcome = "hit" if answer.outcome == "hit" else "miss"
    elif isinstance(answer, Failed):
        errors = [one.message for one in answer.diagnostics if one.severity != "note"]
        outcome, reason = "failed", (errors or [answer.message])[0].partition("\n")[0][:200]
    elif answer is not None:
        outcome, reason = "declined", answer.reason
    steps = flight.timeline.steps()
    seconds = time.monotonic() - flight.started
    answered(
        Answered(
            flight.name, flight.key, outcome, seconds, client, max(1, len(flight.waiters)), steps.get("wait", 0.0),
            flight.way, reason, flight.stale, steps, flight.timeline.spans, flight.inputs,
        )
    )  # fmt: skip

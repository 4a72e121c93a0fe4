"""The daemon's two logs: lines for people, and JSON lines with a record per request.
The first is on standard error; the second is a file of limited size.

Writing to that file happens in a thread of its own, and a disk that is full loses lines, never a
build. Values of macros are in neither (``system/redact.py``). Where standard error is the daemon's
own ``daemon.log``, it keeps its size too.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import logging.handlers
import os
import queue
import shutil
import stat
import sys
import time
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO, TextIO

import msgspec

from warmcc import paths, record
from warmcc.daemon.build.flight import Answer, Flight
from warmcc.daemon.system.redact import redacted
from warmcc.errors import DaemonError
from warmcc.protocol import Built, Failed
from warmcc.record import Answered, Outcome

_SIZE = 16 << 20  # bytes, twice: the file that is written and the one before
_STDERR = 2
_ERRORS_SIZE = 8 << 20  # bytes of daemon.log, twice as well
_answered = logging.getLogger("warmcc.answered")


class _Lines(logging.Formatter):
    def format(self, given: logging.LogRecord) -> str:
        line = record.Line(
            given.created, given.levelname.lower(), given.name, redacted(given.getMessage()),
            getattr(given, "answered", None),
        )  # fmt: skip
        return record.encode(line).decode()


class _File(logging.handlers.RotatingFileHandler):
    lost = 0

    def _open(self) -> TextIOWrapper:
        """Never what a link leads to."""
        descriptor = os.open(
            self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600
        )
        return TextIOWrapper(open(descriptor, "ab"), encoding=self.encoding)

    def handleError(self, _record: logging.LogRecord) -> None:  # noqa: N802  (logging's name)
        self.lost += 1


class _People(logging.StreamHandler[TextIO]):
    """Lines on standard error."""

    def format(self, given: logging.LogRecord) -> str:
        return redacted(super().format(given))

    def emit(self, given: logging.LogRecord) -> None:
        super().emit(given)
        keep_errors_to_size()


class _Queue(logging.handlers.QueueHandler):
    def prepare(self, given: logging.LogRecord) -> logging.LogRecord:
        if given.exc_info and not given.exc_text:
            given.exc_text = logging.Formatter().formatException(given.exc_info)
            given.msg, given.args = f"{given.getMessage()}\n{given.exc_text}", None
        return given


def start(level: str, file: Path) -> logging.handlers.QueueListener:
    """Log from now on; ``stop`` of what is returned writes out what is left. Raises OSError."""
    people = _People(sys.stderr)
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


def keep_errors_to_size(limit: int = _ERRORS_SIZE) -> None:
    """Rotate ``daemon.log`` once it is larger than the limit: the old one is ``daemon.log.1``.

    The file is copied and emptied, not renamed: the reaper and the zygotes write to it as well, and
    would go on in the renamed one. Where standard error is something else (a terminal, the
    journal), its reader manages it.
    """
    with contextlib.suppress(OSError, DaemonError):
        found = os.fstat(_STDERR)
        if found.st_size <= limit or not stat.S_ISREG(found.st_mode):
            return
        log = paths.log_path()
        if not os.path.samestat(found, log.lstat()):
            return
        with open(
            log, "rb+"
        ) as file:  # a lock belongs to what opens: a daemon that starts meanwhile may be here, too
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file.fileno()).st_size > limit:
                _put_aside(file, log.with_name(f"{log.name}.1"))


def _put_aside(file: BinaryIO, old: Path) -> None:
    """Copy a log and empty it.
    On a full disk what it held is lost: that is better than a disk that stays full."""
    flags = fcntl.fcntl(_STDERR, fcntl.F_GETFL)
    # Else the next line would leave a hole in front of it
    fcntl.fcntl(_STDERR, fcntl.F_SETFL, flags | os.O_APPEND)
    try:
        with open(
            os.open(
                old, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            ),
            "wb",
        ) as copy:
            shutil.copyfileobj(file, copy, 1 << 20)
    finally:
        file.truncate(0)


def answered(record: Answered) -> None:
    """Write down how a request ended."""
    record = msgspec.structs.replace(
        record,
        reason=redacted(record.reason),
        stale=redacted(record.stale),
        inputs={name: redacted(value) for name, value in record.inputs.items()},
    )
    reason = f": {record.reason}" if record.reason else ""
    _answered.info(
        "%s: %s in %.3f s%s", record.name, record.outcome, record.seconds, reason,
        extra={"answered": record},
    )  # fmt: skip


def landed(flight: Flight, answer: Answer | None, client: int) -> None:
    """Write down how a flight ended; ``client`` began it.
    The answer is None when nobody waited for it any more."""
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
            flight.name, flight.key, outcome, seconds, client, max(1, len(flight.waiters)),
            steps.get("wait", 0.0), flight.way, reason, flight.stale, steps, flight.timeline.spans,
            flight.inputs,
        )
    )  # fmt: skip

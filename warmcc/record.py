"""The daemon's record of each answered request, one JSON object per line in its log.

The daemon writes them; ``warmcc stats``, ``why``, ``trace`` and ``logs`` read them, also when no
daemon runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

Outcome = Literal["hit", "miss", "failed", "declined", "cancelled", "busy"]


class Span(msgspec.Struct, frozen=True):
    """One step on a build's timeline: ``start`` and ``end`` in seconds since the build began."""

    step: str
    name: str
    start: float
    end: float


class Answered(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one request, or all that shared a flight, ended.

    ``inputs`` are the parts of the request key, shortened for reading (texts as digests); ``stale``
    says what had changed of the results that were known under the key; ``waited`` are the seconds
    for a place among the compilers.
    """

    name: str
    key: str
    outcome: Outcome
    seconds: float
    client: int = 0
    clients: int = 1
    waited: float = 0.0
    way: str = ""
    reason: str = ""
    stale: str = ""
    steps: dict[str, float] = {}
    spans: list[Span] = []
    inputs: dict[str, str] = {}


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the structured log; ``time`` in seconds since the epoch."""

    time: float
    level: str
    logger: str
    message: str
    answered: Answered | None = None


encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Line).decode


def decode(text: bytes) -> Line | None:
    """A line of the log; None when it is cut or damaged."""
    with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
        return _decode(text)
    return None


def read(file: Path) -> Iterator[Line]:
    """The lines of a structured log and its rotated part, oldest first, without damaged ones."""
    for path in (file.with_name(f"{file.name}.1"), file):
        with contextlib.suppress(OSError), open(path, "rb") as lines:
            for text in lines:
                if (line := decode(text)) is not None:
                    yield line

"""What the daemon's store has of an extension, with the requests that it was built for."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from warmcc.client.connection.session import Session
from warmcc.errors import VersionMismatch
from warmcc.protocol import Built, Cache
from warmcc.request import Request


class Found(NamedTuple):
    """One artifact."""

    key: str
    request: Request
    built: Built


class Described(NamedTuple):
    """``found`` are those that hold, the last used first; ``why_none`` says what else is there."""

    found: list[Found]
    why_none: str


def described(wanted: str) -> Described:
    """The artifacts of an extension, by its name or the first 8 letters of a key, or more.
    Raises DaemonError."""
    with Session(autostart=True) as session:
        if "describe" not in session.welcome.capabilities:
            raise VersionMismatch(
                "the daemon that runs is of an older version, which cannot describe artifacts.\n"
                "Restart it with: warmcc stop; warmcc start"
            )
        data = session.ask(lambda number: Cache(number, "describe", wanted=wanted)).data
    found = [
        Found(
            one["key"], msgspec.convert(one["request"], Request),
            msgspec.convert(one["built"], Built),
        )
        for one in data["found"]
    ]  # fmt: skip
    reason = "`warmcc cache ls` shows what is there"
    if data["stale"]:
        reason = "its files or its toolchain have changed since it was built; build it again"
    elif data["unknown"]:
        reason = "its call is not known, as it is from a shared store or of an older warmcc"
    return Described(found, reason)

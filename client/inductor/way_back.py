"""When Inductor does its own work after all: said once, and counted by the daemon."""

from __future__ import annotations

import os

from warmcc.client.connection import session
from warmcc.client.connection.offline import is_offline
from warmcc.client.notices import warn_once
from warmcc.errors import DaemonUnavailable, WarmccError, WarmccWarning
from warmcc.protocol import Fallback


class Left(Exception):
    """Inductor has to do it. ``said``: something is broken, and the user is told."""

    def __init__(self, reason: str, *, said: bool = False) -> None:
        super().__init__(reason)
        self.said = said


def is_off() -> bool:
    """Whether nothing of warmcc's shall be used."""
    return os.environ.get("WARMCC_DISABLE") == "1" and not is_offline()


def give_way(reason: str) -> None:
    """Say and count that torch's own function is left in its place."""
    warn_once(
        f"warmcc.inductor: {reason}.\nTorch compiles by itself there, which is slower. "
        "(warmcc report collects what its authors need to know.)",
        WarmccWarning,
    )
    count(f"inductor: {reason}")


def count(reason: str) -> None:
    """Have the daemon count it, if one runs."""
    try:
        session.current(autostart=False).tell(Fallback(reason))
    except WarmccError:
        session.forget()


def note(left: Left, *, may_fail: bool) -> None:
    """Count a command that is left to Inductor, and say why where something is broken.
    Raises DaemonUnavailable then, with WARMCC_FALLBACK=0, where the command ``may_fail``: of a
    trial, Inductor would only learn that it did."""
    if left.said:
        if may_fail and os.environ.get("WARMCC_FALLBACK") == "0":
            raise DaemonUnavailable(f"{left} (WARMCC_FALLBACK is 0)") from None
        warn_once(
            f"{left}\nInductor runs its compiler itself, which is slower. "
            "(WARMCC_FALLBACK=0 makes this an error; WARMCC_DISABLE=1 never asks the daemon.)",
            WarmccWarning,
        )
    count(f"inductor: {left}" if not left.said else "inductor: the daemon could not serve it")

"""Send a request; retry once if the daemon dies, and back off while it is busy."""

from __future__ import annotations

import os
import random
import select
import time
from collections.abc import Callable, Sequence

from warmcc import paths
from warmcc.client.connection import session
from warmcc.client.connection.offline import is_offline
from warmcc.client.connection.session import OnOutput, OnProgress
from warmcc.client.connection.timeouts import BUSY_SECONDS
from warmcc.client.connection.wire import Interrupted
from warmcc.errors import (
    DaemonBusy,
    DaemonError,
    DaemonUnavailable,
    OfflineError,
    VersionMismatch,
)
from warmcc.protocol import Built, Busy, Declined, Failed
from warmcc.request import KernelRequest, Request

_LONGEST_WAIT = 30.0


class TooLarge(DaemonError):
    """The daemon would not read the request."""


class _Lost(DaemonUnavailable):
    """The daemon went away between a request and the use of its answer: worth a second attempt."""


def ask(
    request: Request | KernelRequest, size: int, *, on_progress: OnProgress | None = None,
    on_output: OnOutput | None = None, meanwhile: Callable[[], None] | None = None,
    interrupt: int | None = None, publish: bool = False, alike: Sequence[str] = (),
) -> Built | Failed | Declined:  # fmt: skip
    """Have a request of ``size`` bytes built, on this thread's connection.
    The other parameters are those of session.Session.build.

    Raises DaemonError, OfflineError, and connection.Interrupted when ``interrupt`` has something to
    read.
    """
    if is_offline():
        raise OfflineError(f"WARMCC_OFFLINE is set, so {request.name!r} is not built")

    def once() -> Built | Failed | Declined | Busy:
        connection = session.current(autostart=os.environ.get("WARMCC_AUTOSTART", "1") != "0")
        if request.call not in connection.welcome.capabilities:
            raise VersionMismatch(
                f"the daemon that runs is warmcc {connection.welcome.version}, which cannot "
                f"{request.call}.\nRestart it with: warmcc stop; warmcc start"
            )
        if size > (limit := connection.welcome.message_size):
            raise TooLarge(
                f"the request has {size} bytes; the daemon's limit is {limit} (message_size in "
                f"{paths.config_file()})"
            )
        try:
            answer = connection.build(
                request, on_progress=on_progress, on_output=on_output, meanwhile=meanwhile,
                interrupt=interrupt, publish=publish, alike=alike,
            )  # fmt: skip
        except DaemonUnavailable as error:
            session.forget()
            raise _Lost(str(error)) from error
        except DaemonError:
            session.forget()
            raise
        if isinstance(answer, Built) and not os.path.exists(answer.path):
            raise _Lost(f"the daemon returned {answer.path}, which does not exist")
        return answer

    deadline = time.monotonic() + BUSY_SECONDS
    while isinstance(answer := _twice(once), Busy):
        if time.monotonic() > deadline:
            waited = f"{answer.waiting} builds have been waiting for {BUSY_SECONDS:g} s"
            raise DaemonBusy(f"{waited}; try again in about {answer.seconds:.0f} s")
        _wait(min(answer.seconds, _LONGEST_WAIT) * random.uniform(0.5, 1.5), interrupt)
    return answer


def _twice(
    once: Callable[[], Built | Failed | Declined | Busy],
) -> Built | Failed | Declined | Busy:
    """Retry once when the daemon dies, or the artifact is gone before it can be loaded."""
    try:
        return once()
    except _Lost as error:
        lost = error
    try:
        return once()
    except DaemonUnavailable:
        raise DaemonUnavailable(str(lost)) from lost


def _wait(seconds: float, interrupt: int | None) -> None:
    """Raises Interrupted when ``interrupt`` has something to read."""
    if interrupt is None:
        time.sleep(seconds)
    elif select.select([interrupt], [], [], seconds)[0]:
        raise Interrupted

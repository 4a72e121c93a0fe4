"""Have one text compiled: by the daemon, which keeps it, or by the same compiler in this process.

The latter is the way back where no daemon serves (``here.py``); the daemon counts it where there is
one. What a hit does not need is imported when it is needed: a hit takes some ten milliseconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from warmcc.client.connection import ask, session
from warmcc.client.connection.offline import is_offline
from warmcc.errors import DaemonError, DaemonUnavailable, RequestError, WarmccWarning
from warmcc.protocol import Built, Declined, Failed, Fallback, Kernel, encode
from warmcc.request import KernelRequest


class Compiled(msgspec.Struct, frozen=True):
    """What was compiled: its bytes, the lowered names of its kernels, and what the compiler said.
    ``outcome`` is ``hit``, ``miss`` or ``joined``, or ``local`` where no daemon served; ``path``
    is in the store, or empty; ``way`` says what compiled it."""

    image: bytes
    names: dict[str, str]
    log: str
    outcome: str
    seconds: float
    path: str = ""
    way: str = ""


def compiled(request: KernelRequest, meanwhile: Callable[[], None] | None = None) -> Compiled:
    """Compile a request, or find it. ``meanwhile`` is called while the daemon works, if it does.
    Raises CompileError, RequestError, OfflineError, and WarmccError where no compiler is there."""
    size = _size(request)
    if is_offline() or os.environ.get("WARMCC_DISABLE") != "1":
        try:
            found = _asked(request, size, meanwhile)
        except DaemonError as error:
            if os.environ.get("WARMCC_FALLBACK") == "0":
                raise
            _say_why(str(error))
        else:
            if found is not None:
                return found
    from warmcc.client.kernel.here import here

    return here(request)


def _size(request: KernelRequest) -> int:
    """The bytes of a request's message. Raises RequestError."""
    try:
        return len(encode(Kernel(0, request)))
    except UnicodeEncodeError as error:
        raise RequestError(f"{request.name}: the source is not Unicode text: {error}") from None


def asked(request: KernelRequest) -> Compiled | None:
    """What the daemon compiled or found; None where it leaves that to the process.
    Raises DaemonError, OfflineError, CompileError, RequestError."""
    return _asked(request, _size(request), None)


def _asked(
    request: KernelRequest, size: int, meanwhile: Callable[[], None] | None
) -> Compiled | None:
    """The daemon's answer; None where it leaves the request to this process."""
    started = time.monotonic()
    try:
        answer = ask.ask(request, size, meanwhile=meanwhile)
    except ask.TooLarge:
        count("larger than message_size")
        raise
    if isinstance(answer, Failed):
        from warmcc.client.connection import exceptions

        raise exceptions.exception(answer)
    if isinstance(answer, Declined):
        if answer.expected:
            return None
        raise DaemonUnavailable(
            f"the warmcc daemon could not compile {request.name!r}: {answer.reason}"
        )
    assert isinstance(answer, Built)
    try:
        image = Path(answer.path).read_bytes()
    except OSError as error:
        raise DaemonUnavailable(f"{answer.path} cannot be read: {error.strerror}") from error
    seconds = time.monotonic() - started
    return Compiled(
        image, answer.names, answer.output, answer.outcome, seconds, answer.path, answer.way
    )


def _say_why(reason: str) -> None:
    from warmcc.client.notices import warn_once

    count("kernel: no daemon")
    warn_once(
        f"{reason}\nThis process compiles the kernel itself, which is slower. "
        "(WARMCC_FALLBACK=0 makes this an error; WARMCC_DISABLE=1 always compiles here.)",
        WarmccWarning,
    )


def count(reason: str) -> None:
    """Have the way back counted, if a daemon runs."""
    try:
        session.current(autostart=False).tell(Fallback(reason))
    except DaemonError:
        session.forget()

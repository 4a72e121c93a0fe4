"""Have the daemon build a recipe, and say what went wrong in terms of its files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from warmcc.client import failures, session
from warmcc.errors import CompileError, DaemonError, DaemonUnavailable, RequestError
from warmcc.protocol import Build, Built, Declined, Failed, encode

if TYPE_CHECKING:
    from warmcc.client.live.recipe import Recipe
    from warmcc.client.session import OnProgress
    from warmcc.request import Request


def build(recipe: Recipe, *, interrupt: int | None = None, on_progress: OnProgress | None = None) -> Built:
    """Build a recipe's files as they are now, on this thread's connection.

    Raises CompileError, RequestError, OSError and UnicodeDecodeError for what the user can mend, DaemonError when the
    service cannot answer, session.Interrupted when ``interrupt`` has something to read.
    """
    request = recipe.request()
    try:
        answer = _ask(request, interrupt, on_progress)
    except DaemonUnavailable:  # it ended; a new one is started, once
        answer = _ask(request, interrupt, on_progress)
    if isinstance(answer, Declined):
        kind = RequestError if answer.expected else DaemonUnavailable
        raise kind(f"the daemon does not build {recipe.name!r}: {answer.reason}")
    if isinstance(answer, Failed):
        error = failures.exception(answer)
        if isinstance(error, CompileError):
            error = CompileError(recipe.in_files(str(error)), recipe.of_files(error.diagnostics))
        raise error
    return answer


def _ask(request: Request, interrupt: int | None, on_progress: OnProgress | None) -> Built | Failed | Declined:
    autostart = os.environ.get("WARMCC_AUTOSTART", "1") != "0"
    try:
        connection = session.current(autostart=autostart)
        if (size := len(encode(Build(0, request)))) > (limit := connection.welcome.message_size):
            raise RequestError(f"{request.name!r} takes {size} bytes, and the daemon {limit} at most (message_size)")
        answer = connection.build(request, on_progress=on_progress, interrupt=interrupt)
    except DaemonError:
        session.forget()
        raise
    if isinstance(answer, Built) and not os.path.exists(answer.path):
        raise DaemonUnavailable(f"the daemon gave {answer.path}, which does not exist")
    return answer

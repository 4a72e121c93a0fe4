"""Have the daemon build a recipe, and say what went wrong in terms of its files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmcc.client.connection import ask, exceptions
from warmcc.errors import CompileError, DaemonUnavailable, RequestError
from warmcc.protocol import Build, Built, Declined, Failed, encode

if TYPE_CHECKING:
    from warmcc.client.connection.session import OnProgress
    from warmcc.client.live.recipe import Recipe


def build(
    recipe: Recipe, *, interrupt: int | None = None, on_progress: OnProgress | None = None
) -> Built:
    """Build a recipe's files as they are now, on this thread's connection.

    Raises CompileError, RequestError, OSError and UnicodeDecodeError for what the user can fix,
    DaemonError when the service cannot answer, connection.Interrupted when ``interrupt`` has
    something to read.
    """
    request = recipe.request()
    size = len(encode(Build(0, request)))
    try:
        answer = ask.ask(request, size, on_progress=on_progress, interrupt=interrupt)
    except ask.TooLarge as large:
        raise RequestError(f"{recipe.name!r}: {large}") from None
    if isinstance(answer, Declined):
        kind = RequestError if answer.expected else DaemonUnavailable
        raise kind(f"the daemon cannot build {recipe.name!r}: {answer.reason}")
    if isinstance(answer, Failed):
        error = exceptions.exception(answer)
        if isinstance(error, CompileError):
            error = CompileError(recipe.in_files(str(error)), recipe.of_files(error.diagnostics))
        raise error
    return answer

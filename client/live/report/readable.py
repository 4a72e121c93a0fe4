"""A failed build for people: the compiler's messages and excerpts, without ninja's lines."""

from __future__ import annotations

import re

from warmcc.errors import CompileError

_TOOLS = re.compile(
    r"\[\d+/\d+\] |FAILED: |ninja: |\s*\S*/?(?:ccache|nvcc|c\+\+|g\+\+|clang\+\+|cc"
    r"|gcc)(?:-\d+)? .* -[co] "
)
_PREFIX = re.compile(r"\AError building extension '[^']*': ?")


def readable(error: BaseException) -> str:
    r"""The text of an error for a person.

    >>> text = "Error building extension 'k': [1/2] c++ -c k.cpp -o k.o\nk.cpp:1:2: error: no"
    >>> readable(CompileError(text))
    'k.cpp:1:2: error: no'
    """
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if not isinstance(error, CompileError):
        return str(error) or type(error).__name__
    rows = _PREFIX.sub("", str(error)).splitlines()
    kept = [row for row in rows if not _TOOLS.match(row)]
    return "\n".join(kept).strip("\n") or str(error)

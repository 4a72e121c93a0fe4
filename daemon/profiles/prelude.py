"""Which prelude a unit starts with: the run of headers in front of the user's own code that warm state can replace."""

from __future__ import annotations

import re

EXTENSION = "#include <torch/extension.h>\n"

# Nothing but blanks and comments may stand in front: a macro defined there could change what the header says.
_LEADING = re.compile(
    r"\ufeff?(?:\s|//[^\n\\]*\n|/\*(?:[^*]|\*(?!/))*\*/)*#[ \t]*include[ \t]*<torch/extension\.h>[ \t]*(?:\r?\n|$)"
)
_NAME_DEFINE = re.compile(r"(?:^|(?<=\s))-DTORCH_EXTENSION_NAME=\S+\s*")


def of_source(text: str) -> str | None:
    """The prelude of a source's text, or None when no warm state can stand for its first lines."""
    return EXTENSION if _LEADING.match(text) else None


def flags(cflags: str) -> str:
    """A unit's flags without those that cannot change what the prelude parses to.

    ``TORCH_EXTENSION_NAME`` is one: no header of torch mentions it. Should one do so, g++ finds that the macro is
    used in the PCH, refuses the PCH and reads the header itself, and the daemon counts it.
    """
    return _NAME_DEFINE.sub("", cflags).strip()

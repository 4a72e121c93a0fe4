"""Files that a compiler reads and tells nobody of: what its assembler is told to read (``.incbin``, ``.include``).

``-MD`` does not name them, so a result that they went into can be found again neither by the store nor by ccache.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_DIRECTIVE = re.compile(rb"incbin|\.include\b")


def in_text(text: str) -> bool:
    """Whether a source may have the assembler read files. Errs on the side of yes."""
    return _DIRECTIVE.search(text.encode("utf-8", "surrogateescape")) is not None


def first(paths: Iterable[str]) -> str | None:
    """The first of some files that may. Raises OSError."""
    return next((path for path in paths if _DIRECTIVE.search(Path(path).read_bytes())), None)

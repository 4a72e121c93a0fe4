"""From a failed request to the exception that stock raises in the same place."""

from __future__ import annotations

import os
import re

from warmcc.errors import CompileError, RequestError
from warmcc.protocol import Failed

# By the name that the daemon gives; everything else is a RuntimeError. OSError's subclasses follow
# from errno.
_KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        AssertionError, AttributeError, FileExistsError, FileNotFoundError, ImportError, IndexError,
        IsADirectoryError, KeyError, LookupError, ModuleNotFoundError, NotADirectoryError,
        NotImplementedError, OSError, OverflowError, PermissionError, RequestError, TypeError,
        UnicodeError, ValueError,
    )
}  # fmt: skip
_DECODING = (  # compiled when it is needed
    r"(?s)'(.+?)' codec can't decode bytes? (?:0x[0-9a-f]+ )?in position (\d+)(?:-\d+)?: (.*)"
)


def exception(failed: Failed) -> Exception:
    """The exception to raise; a compile error carries its diagnostics."""
    if failed.exception == "RuntimeError" and (
        failed.diagnostics or failed.message.startswith("Error building ext")
    ):
        return CompileError(failed.message, failed.diagnostics)
    if failed.errno is not None:
        return OSError(failed.errno, failed.message or os.strerror(failed.errno), failed.filename)
    if failed.exception == "UnicodeDecodeError" and (
        match := re.fullmatch(_DECODING, failed.message)
    ):
        start = int(match[2])
        return UnicodeDecodeError(match[1], bytes(start + 1), start, start + 1, match[3])
    if failed.exception.startswith("Unicode"):
        return UnicodeError(failed.message)
    return _KINDS.get(failed.exception, RuntimeError)(failed.message)

"""Files that a report is written to."""

from __future__ import annotations

import os

from warmcc.client.loading.loader import replacing
from warmcc.errors import RequestError


def check(*paths: str | None) -> None:
    """Whether files can be written, before minutes of measuring. Raises RequestError."""
    for path in filter(None, paths):
        folder = os.path.dirname(path) or "."
        if os.path.isdir(path) or not os.path.isdir(folder):
            raise RequestError(f"{path} cannot be written: it is a folder, or is in none")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise RequestError(f"{path} cannot be written: {folder} does not allow it")


def write(path: str, text: str) -> None:
    """In one step: what stood there stays until all is written. Raises RequestError."""
    try:
        with replacing(path, 0o666) as draft, open(draft, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror}") from None

"""The layout of a store: maps keys and digests to paths (the format: ``store/__init__.py``)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from warmcc import digest
from warmcc.daemon.store.manifest import KINDS

if TYPE_CHECKING:
    from warmcc.daemon.store.manifest import Kind, Result


class Layout:
    """Maps keys and digests to paths in a store."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(root))

    def result_path(self, kind: Kind, key: str) -> str:
        return self._path("results", kind, key)

    def file_path(self, file: str, name: str) -> str:
        """The path of a content: an artifact has its name, an object only its digest."""
        if name and (name in (".", "..") or "/" in name or "\0" in name):
            raise ValueError(f"not a plain file name: {name!r}")
        return (
            f"{self._path('artifacts', '', file)}/{name}"
            if name
            else self._path("objects", "", file)
        )

    def path_of(self, result: Result) -> str:
        return self.file_path(result.file, result.name)

    def headers_path(self, name: str) -> str:
        return self._path("headers", "", name)

    def _path(self, folder: str, kind: str, name: str) -> str:
        if not digest.is_digest(name):
            raise ValueError(f"neither a key nor a digest: {name!r}")
        if kind and kind not in KINDS:
            raise ValueError(f"not a kind of result: {kind!r}")
        return "/".join(filter(None, (str(self.root), folder, kind, name[:2], name)))

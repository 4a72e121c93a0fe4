"""Which makers of objects are no longer trusted: warm state that was found to make something else than stock does.

A maker is a name with a digest of all that it is made of. It loses trust for good: what it made leaves the store, and
it makes nothing more, in this daemon or in a later one. A mended version has another digest, and begins anew.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from pathlib import Path

from warmcc.daemon.store import Store

log = logging.getLogger(__name__)


class Trust:
    """Kept in one file. Reads are cheap; ``withdraw`` walks the store and belongs in a thread."""

    def __init__(self, path: Path, store: Store) -> None:
        self._path = path
        self._store = store
        self.withdrawn: dict[str, str] = {}  # reasons by maker
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(path.read_text(encoding="utf-8"))
            self.withdrawn = {str(maker): str(reason) for maker, reason in dict(found).items()}

    def __contains__(self, maker: str) -> bool:
        return maker not in self.withdrawn

    def withdraw(self, maker: str, reason: str) -> int:
        """Trust a maker no longer; the number of results that left the store."""
        self.withdrawn = {**self.withdrawn, maker: reason}
        with contextlib.suppress(OSError):  # the store forgets all the same
            draft = self._path.with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps(self.withdrawn), encoding="utf-8")
            draft.replace(self._path)
        return self.clear()

    def clear(self) -> int:
        """Take out of the store what is of makers that lost trust: now, and at the start after a crash."""
        gone = self._store.withdraw(frozenset(self.withdrawn)) if self.withdrawn else 0
        if gone:
            log.error("%d results of makers that are no longer trusted were put into quarantine", gone)
        return gone

"""The makers of objects that are no longer trusted: their results differed from stock's.

A maker is a name with a digest of all that it is made of. It loses trust for good: what it made
leaves the store, and it makes nothing more, in this daemon or in a later one. A fixed version has
another digest, and starts with no record.
"""

from __future__ import annotations

import contextlib
import json
import logging
from pathlib import Path

from warmcc.daemon.store import Store
from warmcc.daemon.system.bounds import forget_oldest, write_kept

log = logging.getLogger(__name__)

_MOST = 1000  # makers; the oldest are of versions and toolchains that are long gone
_LONGEST = 1000  # characters of a reason


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
        withdrawn = dict(self.withdrawn)
        forget_oldest(withdrawn, _MOST)
        self.withdrawn = {**withdrawn, maker: reason[:_LONGEST]}
        with contextlib.suppress(OSError):  # the store forgets all the same
            write_kept(self._path, json.dumps(self.withdrawn))
        return self.clear()

    def clear(self) -> int:
        """Remove the results of makers that lost trust: now, and at the start after a crash."""
        gone = self._store.withdraw(frozenset(self.withdrawn)) if self.withdrawn else 0
        if gone:
            log.error(
                "%d results of makers that are no longer trusted were put into quarantine", gone
            )
        return gone

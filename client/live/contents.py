"""What is in the files that an extension is made of.
Whatever announces a change, the contents decide.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from warmcc import digest

_HEADERS = (".h", ".hh", ".hpp", ".hxx", ".cuh", ".inl", ".inc", ".ipp", ".tpp")
_TICK = 50_000_000  # nanoseconds; clocks of file systems tick every 10 ms, some slower
_EMPTY = digest.of_bytes(b"")
_Stat = tuple[int, int, int, int]


@dataclass(frozen=True)
class Contents:
    """The contents of an extension's files, as digests.
    ``files``: digests by path, None for one that cannot be read; ``headers``: names of headers
    in the folders of the sources, as a new one may be the missing one."""

    files: dict[str, str | None]
    headers: frozenset[str]
    stats: dict[str, _Stat | None] = field(compare=False, repr=False)

    @classmethod
    def of(
        cls, sources: Iterable[str], others: Iterable[str] = (), before: Contents | None = None
    ) -> Contents:
        """Read what has been touched since ``before``, and take over the rest."""
        folders = dict.fromkeys(os.path.dirname(path) for path in sources)
        paths = dict.fromkeys([*sources, *others])
        stats = {path: _stat(path) for path in paths}
        files = {}
        for path, found in stats.items():
            known = before is not None and found is not None and before.stats.get(path) == found
            files[path] = before.files[path] if known and before is not None else _digest(path)
        return cls(files, frozenset(name for folder in folders for name in _headers(folder)), stats)

    def as_built(self, files: Mapping[str, str]) -> Contents:
        """These contents as a build has read them; files that are not in it keep what they had."""
        stats = {
            path: found
            for path, found in self.stats.items()
            if files.get(path) in (None, self.files[path])
        }
        return Contents(
            {**self.files, **files},
            self.headers,
            {path: stats.get(path) for path in {**self.files, **files}},
        )

    def unfinished(self) -> bool:
        """Whether a file has nothing in it: editors empty or remove it before they write."""
        return any(found in (None, _EMPTY) for found in self.files.values())

    def touched(self) -> bool:
        """Whether a file is not as it was, by its looks."""
        return any(_stat(path) != found for path, found in self.stats.items())


def _stat(path: str) -> _Stat | None:
    """How a file looks.
    One that was written just now may be written again without looking different."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    fresh = abs(time.time_ns() - found.st_mtime_ns) < _TICK
    return found.st_mtime_ns, found.st_size, found.st_ino, time.monotonic_ns() if fresh else 0


def _digest(path: str) -> str | None:
    try:
        return digest.of_file(path)
    except OSError:
        return None


def _headers(folder: str) -> Iterable[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if entry.name.endswith(_HEADERS)]
    except OSError:
        return []

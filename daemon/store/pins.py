"""Which files are in use: handed out a moment ago, or mapped by a running process."""

from __future__ import annotations

import glob
import os
import re
import threading
import time

# The end of a line of /proc/<pid>/maps: a path into a store, wherever that is mounted for the
# process.
_MAPPED = re.compile(rb"/([0-9a-f]{64})(?:/([^/\n]+?))?(?: \(deleted\))?$", re.MULTILINE)


class Pins:
    """Files that were handed out less than ``grace`` seconds ago, and may not be open yet.
    Thread-safe."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}

    def hold(self, path: str) -> None:
        with self._lock:
            self._until[path] = time.monotonic() + self._grace

    def held(self, path: str) -> bool:
        return self._until.get(path, 0.0) > time.monotonic()

    def remove_unless_held(self, path: str) -> bool:
        """Unlink in one step with looking, so that nobody is handed the file in between.
        Raises OSError."""
        with self._lock:
            if self.held(path):
                return False
            os.unlink(path)
            return True

    def forget_expired(self) -> None:
        with self._lock:
            now = time.monotonic()
            self._until = {path: until for path, until in self._until.items() if until > now}


def mapped() -> set[tuple[str, str]]:
    """Digest and name ('' for objects) of the stored files that visible processes map."""
    found: set[tuple[str, str]] = set()
    for path in glob.iglob("/proc/[0-9]*/maps"):
        try:
            with open(path, "rb") as file:
                lines = file.read()
        except OSError:  # ended, or another user's
            continue
        found.update(
            (name.decode(), os.fsdecode(artifact.replace(b"\\012", b"\n")))
            for name, artifact in set(_MAPPED.findall(lines))
        )
    return found

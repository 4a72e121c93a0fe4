"""Bounds for what would grow without end in a daemon that runs for months.
Reasons that are counted, dictionaries that remember, and folders made for toolchains that are long
gone.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from warmcc.daemon.system.redact import redacted

OTHER = "other"
REASONS = 100  # distinct reasons that are counted
_LONGEST = 200  # characters of a reason
_PATH = re.compile(r"(?<![\w.…])(?:/[^\s/:;,'\"()]+){2,}/?")

KEPT = 8  # folders that are kept, whoever made them,
_OLD_SECONDS = 30 * 86400.0  # for this long without use;
_NEW_SECONDS = 3600.0  # what was used since may be another daemon's that is just making it


class Reasons(dict[str, int]):
    """How often each reason was met: ``reasons[text] += 1``.
    Values of macros and paths are left out of the text, as they differ from build to build;
    once there are many reasons, further ones count under ``OTHER``."""

    def __getitem__(self, reason: str) -> int:
        return self.get(self._name(reason), 0)

    def __setitem__(self, reason: str, count: int) -> None:
        super().__setitem__(self._name(reason), count)

    def _name(self, reason: str) -> str:
        name = _PATH.sub("…", redacted(reason.partition("\n")[0]))[:_LONGEST]
        return name if name in self or len(self) < REASONS else OTHER


def forget_oldest(kept: dict[Any, Any], most: int) -> None:
    """Drop what came first into a dictionary until it has room for one more within ``most``."""
    while len(kept) >= most:
        del kept[next(iter(kept))]


def write_kept(path: Path, text: str) -> None:
    """Write a small file in one step; on an error nothing is left of it. Raises OSError."""
    draft = path.with_suffix(f".{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


_unremoved: set[Path] = set()
_lock = threading.Lock()


def remove(*places: Path) -> None:
    """Remove files, and folders with all that is in them.
    What cannot be removed now (too many open files) is tried again with the next call."""
    with _lock:
        waiting = {*places, *_unremoved}
    for one in waiting:
        with contextlib.suppress(OSError):
            shutil.rmtree(one) if one.is_dir() and not one.is_symlink() else one.unlink()
    with _lock:
        _unremoved.difference_update(waiting)
        _unremoved.update(one for one in waiting if os.path.lexists(one))


def mark_used(place: Path) -> None:
    """Note that something below the cache was used now."""
    with contextlib.suppress(OSError):
        os.utime(place)


def prune(folder: Path, pattern: str, in_use: Collection[Path]) -> list[Path]:
    """Remove matching folders that are unused for a month, or not among the last used.
    What is in use stays.

    Each is renamed first, so that nobody meets a half of it. Returns what went; what cannot be
    removed stays for the next time.
    """
    dated = {}
    for place in folder.glob(pattern):
        with contextlib.suppress(OSError):
            dated[place] = place.lstat().st_mtime
    now = time.time()
    gone = []
    for number, place in enumerate(sorted(dated, key=lambda place: -dated[place]), start=1):
        age = now - dated[place]
        if place in in_use or age < _NEW_SECONDS or (number <= KEPT and age < _OLD_SECONDS):
            continue
        with contextlib.suppress(OSError):
            aside = place.rename(place.with_name(f"{secrets.token_hex(8)}.gone{place.suffix}"))
            shutil.rmtree(aside) if aside.is_dir() and not aside.is_symlink() else aside.unlink()
            gone.append(place)
    return gone

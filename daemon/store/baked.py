"""A new cache that begins with the content of another one, which an image brings.

That one may be read-only, and root's. Its precompiled headers, which take a gigabyte each, are
linked, and everything else is copied: what lies there is never written to.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
from pathlib import Path

from warmcc.daemon.store.claim import LOCK
from warmcc.errors import DaemonError

log = logging.getLogger(__name__)

_DRAFT = "baked.draft"
_LAST = "store"  # each daemon has one, so it is there when all else is
_LEFT_OUT = frozenset((LOCK, "tmp", "beside", "staging", "servers", _DRAFT))
_LINKED = ".gch"


def begin(cache: Path, baked: str) -> bool:
    """Fill a cache that no daemon has used yet; the caller holds its lock. Whether it was filled.
    Raises DaemonError for a folder that is not there, or that others can write to."""
    draft = cache / _DRAFT
    shutil.rmtree(draft, ignore_errors=True)
    if not baked or (cache / _LAST).exists():
        return False
    _check(Path(baked))
    try:
        _copy(Path(baked), draft)
        for entry in sorted(draft.iterdir(), key=lambda entry: entry.name == _LAST):
            place = cache / entry.name
            if place.is_dir():  # of a start that was killed
                shutil.rmtree(place)
            entry.rename(place)
    except OSError as error:
        log.warning("the cache begins empty: %s was not copied: %s", baked, error)
        return False
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return True


def _check(baked: Path) -> None:
    try:
        found = baked.stat()
        listed = os.listdir(baked) if stat.S_ISDIR(found.st_mode) else []
    except OSError as error:
        raise DaemonError(f"baked: {baked} cannot be read: {error.strerror}") from None
    if _LAST not in listed:
        raise DaemonError(
            f"baked: {baked} is not a cache; fill one: WARMCC_CACHE_DIR={baked} warmcc warm, then "
            "warmcc stop"
        )
    if found.st_uid not in (0, os.getuid()) or found.st_mode & 0o022:
        raise DaemonError(
            f"baked: {baked} can be written by other users, so nothing in it can be trusted; make "
            "it root's or yours (chown, chmod go-w)"
        )


def _copy(folder: Path, to: Path) -> None:
    """Copy a folder. Raises OSError."""
    to.mkdir(mode=0o700)
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name in _LEFT_OUT:
                continue
            place = to / entry.name
            if entry.is_dir(follow_symlinks=False):
                _copy(Path(entry.path), place)
            elif entry.is_symlink():
                place.symlink_to(os.readlink(entry.path))
            elif entry.name.endswith(_LINKED):
                place.symlink_to(os.path.abspath(entry.path))
            elif entry.is_file():
                shutil.copy2(entry.path, place)

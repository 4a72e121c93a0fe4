"""Precompiled headers of a machine's shared store.
Its operator's daemon puts them there, and the others use them in place: each reads them once, to
compare their digest, and their pages are in memory once for all.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
from pathlib import Path

from warmcc import digest
from warmcc.daemon.closure.closure import Closures
from warmcc.daemon.pch.pch import Profile, Record, fingerprint, header_sets, read_record
from warmcc.daemon.store.manifest import Damaged
from warmcc.daemon.store.shared import SharedStore

log = logging.getLogger(__name__)

_FILES = ("prelude.h", "prelude.h.gch", "prelude.h.gch.sum", "profile")


class SharedProfiles:
    """All methods block, and belong in a thread."""

    def __init__(self, store: SharedStore, closures: Closures, size_limit: int) -> None:
        self._store = store
        self._closures = closures
        self._size_limit = size_limit
        store.keep_headers(lambda: header_sets(store.root / "profiles"))

    def find(self, profile: Profile) -> tuple[Path, Record] | None:
        """The folder of this profile's PCH, complete, verified and up to date; or None."""
        if self._store.refused is not None or self._store.operator:
            return None
        folder = self._store.root / "profiles" / profile.id
        try:
            for path in (folder, *(folder / name for name in _FILES)):
                self._store.check(path)
            record = read_record(folder)
            if record is None or (record.flags, record.headers) != (
                profile.flags,
                list(profile.headers),
            ):
                raise Damaged(f"profile {profile.id}")
            self._store.take_headers(record.closure)
            if not self._closures.holds(record.closure):
                return None
            if (folder / "prelude.h.gch").stat().st_size > self._size_limit:
                raise Damaged(f"precompiled header {profile.id}, larger than profile_size")
            if digest.of_file(folder / "prelude.h.gch") != record.sha256:
                raise Damaged(f"precompiled header {profile.id}")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, Damaged) as error:
            log.warning("the shared store is damaged: %s", error)
            return None
        return folder, Record(
            record.flags, record.headers, record.finished, record.sha256,
            fingerprint(folder / "prelude.h.gch"), record.includes, record.closure, record.asked,
        )  # fmt: skip

    def offer(self, profile: Profile, *, asked: bool) -> None:
        """Put a PCH into the shared store; does nothing unless run by its operator.
        Nor does it offer a PCH that no setting names: a caller's flags and headers are
        private."""
        if (
            profile.record is None
            or not self._store.wants(asked)
            or profile.size > self._size_limit
        ):
            return
        root = self._store.root / "profiles"
        target, draft = root / profile.id, root / f".{secrets.token_hex(8)}"
        try:
            with contextlib.suppress(FileExistsError):
                root.mkdir()
                root.chmod(0o755)
            for left in root.glob(".*"):  # of a daemon that was killed
                shutil.rmtree(left, ignore_errors=True)
            draft.mkdir()
            for name in _FILES:
                shutil.copyfile(profile.folder / name, draft / name)
                os.chmod(draft / name, 0o644)
            draft.chmod(0o755)
            self._store.give_headers(profile.record.closure)
            shutil.rmtree(target, ignore_errors=True)
            draft.rename(target)
            self._keep_to_limit(target)
        except OSError as error:
            shutil.rmtree(draft, ignore_errors=True)
            log.warning("profile %s was not put into the shared store: %s", profile.id[:12], error)

    def _keep_to_limit(self, newest: Path) -> None:
        """Remove the oldest until all of them fit.
        One that is open stays readable. Raises OSError."""
        made = sorted(
            newest.parent.iterdir(), key=lambda folder: (folder != newest, -folder.stat().st_mtime)
        )
        size = 0
        for folder in made:
            size += sum(file.stat().st_size for file in folder.iterdir())
            if size > self._size_limit and folder != newest:
                shutil.rmtree(folder, ignore_errors=True)

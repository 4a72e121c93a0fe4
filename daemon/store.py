"""Results on disk, named by content, checked at every read.

    <root>/results/<aa>/<key>             manifest of a key: 32 bytes SHA-256 of the rest, then msgpack
                                          [version, kind, [result, ...]], newest first, at most 16
    <root>/objects/<aa>/<sha256>          an object file
    <root>/artifacts/<aa>/<sha256>/<name> a shared object or program, mode 0755
    <root>/headers/<aa>/<sha256>          a header set (headers.py)
    <root>/staging/<pid>-<random>/        a flight's tree; gone when its process is
    <root>/quarantine/                    what did not match its digest

A key has results of several closures: the first whose closure still holds is the hit. Writing is staging, fsync,
rename; a published file is never written again and never gets a second name. A manifest's mtime is its last use.
Readers take no lock. One process writes, the daemon; its threads take turns at manifests.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import psutil

from warmcc import digest, paths
from warmcc.daemon.closure import Closure, Closures
from warmcc.errors import DaemonError

VERSION = 1
RESULTS_PER_KEY = 16
GRACE_SECONDS = 600.0  # what was handed out is not evicted for so long: its client may be about to load it
QUARANTINE_LIMIT = 32  # files kept for looking at

Kind = Literal["artifact", "unit"]


class Result(msgspec.Struct, frozen=True):
    """One known result of a key. ``file`` is the content's digest, ``name`` the artifact's ('' for an object)."""

    file: str
    name: str
    size: int
    closure: Closure
    created: float
    meta: dict[str, Any]


class Manifest(msgspec.Struct, frozen=True, array_like=True):
    """All known results of a key."""

    version: int
    kind: Kind
    results: list[Result]


class Store:
    """The store below one folder. Thread-safe. Raises DaemonError when the folder cannot be used."""

    def __init__(self, root: Path, size_limit: int) -> None:
        self.root = root
        self._limit = size_limit
        self._lock = threading.RLock()
        self._pins: dict[str, float] = {}  # digest of a file → until when it stays
        self.quarantined = 0
        try:
            paths.private_dir(root)
            for name in ("results", "objects", "artifacts", "headers", "staging", "quarantine"):
                (root / name).mkdir(mode=0o700, exist_ok=True)
            probe = self.staging()
        except OSError as error:
            raise DaemonError(f"the store cannot be used: {root}: {error.strerror}") from error
        self.discard(probe)
        for folder in (root / "staging").iterdir():
            pid = folder.name.partition("-")[0]
            if not pid.isdigit() or int(pid) == os.getpid() or not psutil.pid_exists(int(pid)):
                self.discard(folder)
        self._bytes, self._counts = self._measure()

    # ------------------------------------------------------------------ staging

    def staging(self) -> Path:
        """A new, empty folder for one flight. Raises OSError."""
        folder = self.root / "staging" / f"{os.getpid()}-{secrets.token_hex(8)}"
        folder.mkdir(mode=0o700)
        return folder

    @staticmethod
    def discard(folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)

    # ------------------------------------------------------------------ paths

    def _manifest(self, key: str) -> Path:
        if not digest.is_digest(key):
            raise ValueError(f"not a key: {key!r}")
        return self.root / "results" / key[:2] / key

    def _file(self, sha256: str, name: str) -> Path:
        if not digest.is_digest(sha256):
            raise ValueError(f"not a digest: {sha256!r}")
        if not name:
            return self.root / "objects" / sha256[:2] / sha256
        if name in (".", "..") or "/" in name or "\0" in name:
            raise ValueError(f"not a file name: {name!r}")
        return self.root / "artifacts" / sha256[:2] / sha256 / name

    # ------------------------------------------------------------------ reading

    def results(self, key: str) -> list[Result]:
        """What is known of a key; a damaged manifest is put into quarantine and counts as nothing."""
        return self._read(key).results

    def _read(self, key: str) -> Manifest:
        path = self._manifest(key)
        nothing = Manifest(VERSION, "artifact", [])
        try:
            data = path.read_bytes()
        except OSError:
            return nothing
        try:
            if bytes.fromhex(digest.of_bytes(data[32:])) == data[:32]:
                found = msgspec.msgpack.decode(data[32:], type=Manifest)
                return found if found.version == VERSION else nothing
        except msgspec.MsgspecError:
            pass
        self._quarantine(path)
        return nothing

    def find(self, kind: Kind, key: str, closures: Closures) -> tuple[Result, Path] | None:
        """The first result whose closure holds and whose file is what it was. It is pinned for a while."""
        for result in self.results(key):
            if not closures.holds(result.closure):
                continue
            path = self._file(result.file, result.name)
            self._pin(result.file)
            if self._intact(path, result.file):
                with contextlib.suppress(OSError):
                    os.utime(self._manifest(key))
                return result, path
            self._forget(kind, key, result)
        return None

    def _intact(self, path: Path, sha256: str) -> bool:
        """Whether a file's content has the digest that it is named by; else it goes into quarantine."""
        try:
            if digest.of_file(path) == sha256:
                return True
        except FileNotFoundError:
            return False
        except OSError:
            pass
        self._quarantine(path)
        return False

    def _quarantine(self, path: Path) -> None:
        with self._lock:
            folder = self.root / "quarantine"
            with contextlib.suppress(OSError):
                path.rename(folder / f"{time.time_ns()}-{path.name}")
                self.quarantined += 1
            for old in sorted(folder.iterdir())[:-QUARANTINE_LIMIT]:
                old.unlink(missing_ok=True)

    def _pin(self, sha256: str) -> None:
        self._pins[sha256] = time.monotonic() + GRACE_SECONDS

    # ------------------------------------------------------------------ writing

    def publish(
        self, kind: Kind, key: str, file: Path, name: str, closure: Closure, meta: dict[str, Any]
    ) -> tuple[Result, Path]:
        """Keep a file from a staging tree under a key; the file is moved. Raises OSError, and keeps nothing then."""
        with open(file, "rb") as opened:
            os.fsync(opened.fileno())
        sha256, size = digest.of_file(file), file.stat().st_size
        target = self._file(sha256, name)
        self._pin(sha256)
        with self._lock:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not target.exists() or not self._intact(target, sha256):
                file.chmod(0o755 if name else 0o600)
                file.rename(target)
                _sync_folder(target.parent)
                self._bytes += size
                self._counts["artifacts" if name else "units"] += 1
            result = Result(sha256, name, size, closure, time.time(), meta)
            known = [r for r in self.results(key) if r.closure != closure]
            self._write(key, Manifest(VERSION, kind, [result, *known][:RESULTS_PER_KEY]))
        return result, target

    def _write(self, key: str, manifest: Manifest) -> None:
        path = self._manifest(key)
        if not manifest.results:
            path.unlink(missing_ok=True)
            return
        data = msgspec.msgpack.encode(manifest)
        self._replace(path, bytes.fromhex(digest.of_bytes(data)) + data)

    def _replace(self, path: Path, data: bytes) -> None:
        """Write a whole file so that it is there complete or not at all."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self.root / "staging" / f"{os.getpid()}-{secrets.token_hex(8)}.file"
        try:
            with open(draft, "wb") as opened:
                opened.write(data)
                opened.flush()
                os.fsync(opened.fileno())
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)

    def _forget(self, kind: Kind, key: str, result: Result) -> None:
        with self._lock, contextlib.suppress(OSError):
            self._write(key, Manifest(VERSION, kind, [r for r in self.results(key) if r != result]))

    def put_headers(self, payload: bytes) -> str:
        """Keep a header set; gives its digest. Raises OSError."""
        name = digest.of_bytes(payload)
        path = self.root / "headers" / name[:2] / name
        with self._lock:
            if self.get_headers(name) is None:
                self._replace(path, payload)
                self._bytes += len(payload)
        return name

    def get_headers(self, name: str) -> bytes | None:
        """A header set, or None when it is missing or damaged."""
        if not digest.is_digest(name):
            return None
        path = self.root / "headers" / name[:2] / name
        try:
            payload = path.read_bytes()
        except OSError:
            return None
        if digest.of_bytes(payload) == name:
            return payload
        self._quarantine(path)
        return None

    # ------------------------------------------------------------------ looking after it

    def _manifests(self) -> Iterator[tuple[str, Path]]:
        for path in (self.root / "results").glob("??/*"):
            if digest.is_digest(path.name):
                yield path.name, path

    def _files(self) -> Iterator[tuple[str, str, Path]]:
        """Every published file with its digest and its kind."""
        for path in (self.root / "objects").glob("??/*"):
            yield path.name, "units", path
        for path in (self.root / "artifacts").glob("??/*/*"):
            yield path.parent.name, "artifacts", path
        for path in (self.root / "headers").glob("??/*"):
            yield path.name, "headers", path

    def _measure(self) -> tuple[int, dict[str, int]]:
        size, counts = 0, {"artifacts": 0, "units": 0, "headers": 0}
        for _, kind, path in self._files():
            with contextlib.suppress(OSError):
                size += path.stat().st_size
                counts[kind] += 1
        return size, counts

    def usage(self) -> dict[str, Any]:
        """Bytes, numbers of files by kind, and how much was quarantined by this process."""
        return {"bytes": self._bytes, **self._counts, "quarantined": self.quarantined}

    def entries(self) -> list[dict[str, Any]]:
        """All results, last used first."""
        rows = []
        for key, path in self._manifests():
            with contextlib.suppress(OSError):
                used = path.stat().st_mtime
                manifest = self._read(key)
                rows += [
                    {
                        "key": key,
                        "kind": manifest.kind,
                        "name": r.name,
                        "size": r.size,
                        "created": r.created,
                        "used": used,
                    }
                    for r in manifest.results
                ]
        return sorted(rows, key=lambda row: -row["used"])

    def verify(self) -> dict[str, Any]:
        """Read and check every file. What is damaged goes into quarantine."""
        checked = damaged = 0
        for sha256, _, path in self._files():
            checked += 1
            damaged += not self._intact(path, sha256)
        for key, _ in self._manifests():
            checked += 1
            before = self.quarantined
            self._read(key)
            damaged += self.quarantined - before
        self._bytes, self._counts = self._measure()
        return {"checked": checked, "damaged": damaged, **self.usage()}

    def prune(self, limit: int | None = None) -> dict[str, Any]:
        """Evict least used results until the rest fits into ``limit`` bytes (None: the store's own limit)."""
        limit = self._limit if limit is None else limit
        with self._lock:
            used = self._in_use()
            self._bytes, self._counts = self._measure()
            before, evicted = self._bytes, 0
            ages = []
            for key, path in self._manifests():
                with contextlib.suppress(OSError):
                    ages.append((path.stat().st_mtime, key))
            users = self._users(key for _, key in ages)
            for _, key in sorted(ages):
                if self._bytes <= limit:
                    break
                evicted += self._evict(key, users, used)
            self._remove_orphans(users, used)
        return {"freed": before - self._bytes, "evicted": evicted, **self.usage()}

    def clear(self) -> dict[str, Any]:
        """Remove everything that is not in use."""
        return self.prune(0)

    def _users(self, keys: Iterator[str]) -> dict[str, int]:
        """How many results refer to each published file."""
        users: dict[str, int] = {}
        for key in keys:
            for result in self.results(key):
                for name in {result.file, *result.closure.headers}:
                    users[name] = users.get(name, 0) + 1
        return users

    def _evict(self, key: str, users: dict[str, int], used: set[str]) -> bool:
        """Remove a key's manifest, and its files if nobody else refers to them; not if one is in use."""
        results = self.results(key)
        if any(result.file in used for result in results):
            return False
        self._manifest(key).unlink(missing_ok=True)
        for result in results:
            for name in {result.file, *result.closure.headers}:
                users[name] -= 1
            if users[result.file] == 0:
                self._remove(self._file(result.file, result.name))
        return True

    def _remove_orphans(self, users: dict[str, int], used: set[str]) -> None:
        """Files that no result refers to any more, unless in use. Called with the lock held."""
        for sha256, _, path in list(self._files()):
            if users.get(sha256, 0) <= 0 and sha256 not in used:
                self._remove(path)
        self._bytes, self._counts = self._measure()

    def _remove(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            self._bytes -= path.stat().st_size
            path.unlink()
            if path.parent.parent.parent.name == "artifacts":
                path.parent.rmdir()

    def _in_use(self) -> set[str]:
        """Digests that are pinned, or mapped by a process of this user."""
        now = time.monotonic()
        self._pins = {name: until for name, until in self._pins.items() if until > now}
        used = set(self._pins)
        mark = f"{self.root}/artifacts/"
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
                used |= {line.partition(mark)[2].split("/")[1] for line in maps if mark in line}
        return used


def _sync_folder(folder: Path) -> None:
    """Make a rename in a folder last. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

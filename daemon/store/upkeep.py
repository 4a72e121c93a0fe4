"""Looking after the store: what is in it, whether it is whole, and what has to go."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from warmcc import digest
from warmcc.daemon.store import manifest
from warmcc.daemon.store.pins import Pins, mapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmcc.daemon.store.manifest import Kind, Result
    from warmcc.daemon.store.tree import Tree

QUARANTINE_FILES = 32
QUARANTINE_BYTES = 64 << 20
_CONTENT = ("objects", "artifacts", "headers")


class Listed(NamedTuple):
    """A manifest as it was read; ``results`` is None when it is damaged."""

    path: str
    kind: Kind
    key: str
    used_ns: int
    results: list[Result] | None


def entries(tree: Tree, name: str = "") -> list[dict[str, Any]]:
    found = sorted(_manifests(tree), key=lambda listed: -listed.used_ns)
    return [
        {
            "kind": listed.kind, "key": listed.key, "name": result.name, "file": result.file,
            "size": result.size, "created": result.created, "used": listed.used_ns / 1e9,
            **(_details(tree, result) if name else {}),
        }
        for listed in found
        for result in listed.results or ()
        if not name or (listed.kind == "artifact" and _is_called(name, listed, result))
    ]  # fmt: skip


def _is_called(name: str, listed: Listed, result: Result) -> bool:
    return result.name == f"{name}.so" or (len(name) >= 8 and listed.key.startswith(name))


def _details(tree: Tree, result: Result) -> dict[str, Any]:
    path = os.path.join(tree.root, tree.path_of(result))
    return {"path": path, "sources": result.meta.get("sources", {})}


def verify(tree: Tree) -> dict[str, int]:
    ok = damaged = removed = 0
    for folder in _CONTENT:
        for entry in tree.files(folder):
            state = _whole(tree, entry.path)
            ok += state is True
            damaged += state is False and _set_aside(tree, entry.path)
    for listed in _manifests(tree):  # after the files, whose loss it shows
        if listed.results is None:
            damaged += _set_aside(tree, listed.path)
        else:
            ok += 1
            removed += _drop_incomplete(tree, listed)
    tree.recount()
    return {"checked": ok + damaged, "ok": ok, "damaged": damaged, "removed": removed}


def withdraw(tree: Tree, makers: frozenset[str]) -> int:
    def wrong(result: Result) -> bool:
        return not makers.isdisjoint(result.meta.get("makers", ()))

    gone: list[Result] = []
    needed: set[str] = set()
    for listed in _manifests(tree):
        found = listed.results or []
        if any(map(wrong, found)):
            with tree.lock:
                again = _listed(tree, listed.path)
                found = again.results or [] if again is not None else []
                gone += filter(wrong, found)
                found = [result for result in found if not wrong(result)]
                if again is not None:
                    try:
                        _rewrite(tree, again, found)
                    except OSError:  # a full disk: better nothing than something wrong
                        tree.remove(again.path)
                        found = []
        needed.update(tree.path_of(result) for result in found)
    for path in {tree.path_of(result) for result in gone} - needed:
        with tree.lock:
            tree.quarantine(path)
    return len(gone)


def prune(tree: Tree, pins: Pins, limit: int, named: frozenset[str]) -> dict[str, int]:
    pins.forget_expired()
    tree.recount()
    before = tree.total()
    needed = Counter(map(tree.headers_path, named))
    # When each was used, and where it is: all their contents would be too much to hold at a time.
    survey = []
    for listed in _manifests(tree):
        if listed.results is None:
            _set_aside(tree, listed.path)
        else:
            needed.update(path for result in listed.results for path in _needs(tree, result))
            survey.append((listed.used_ns, listed.path))
    _trim_quarantine(tree, min(QUARANTINE_BYTES, limit // 20))
    pruning = _Pruning(tree, pins, needed)
    pruning.remove_orphans()
    for used_ns, path in sorted(survey):
        if tree.total() <= limit:
            break
        pruning.evict(path, used_ns)
    return {
        "bytes": tree.total(),
        "freed": before - tree.total(),
        "results": pruning.results,
        "files": pruning.files,
    }


class _Pruning:
    """One pass: who needs which file, and what was removed so far.

    The survey is older than what happens here, so everything is looked at again with the lock held.
    A file that a result published since the survey needs is pinned.
    """

    def __init__(self, tree: Tree, pins: Pins, needed: Counter[str]) -> None:
        self.results = 0
        self.files = 0
        self._tree = tree
        self._pins = pins
        self._mapped = mapped()
        self._needed = needed

    def remove_orphans(self) -> None:
        """Files that no result names: left by a crash, or by a result that was replaced."""
        for folder in _CONTENT:
            for entry in self._tree.files(folder):
                if not self._needed[entry.path]:
                    self._remove(entry.path)

    def evict(self, path: str, used_ns: int) -> None:
        """Drop the unused results of a manifest, and the files that only they needed."""
        with self._tree.lock, contextlib.suppress(OSError):  # what cannot be removed stays
            listed = _listed(self._tree, path)
            if listed is None or listed.results is None or listed.used_ns != used_ns:
                return  # used or damaged since
            results = listed.results
            kept = [result for result in results if self._in_use(result)]
            if kept and len(kept) == len(results):
                return
            if kept:
                _rewrite(self._tree, listed, kept)
            else:
                self._tree.remove(listed.path)
            for result in results:
                if result not in kept:
                    self.results += 1
                    self._release(result)

    def _release(self, result: Result) -> None:
        for path in _needs(self._tree, result):
            self._needed[path] -= 1
            if not self._needed[path]:
                self._remove(path)

    def _in_use(self, result: Result) -> bool:
        return (result.file, result.name) in self._mapped or self._pins.held(
            self._tree.path_of(result)
        )

    def _remove(self, path: str) -> None:
        if _identity(self._tree, path) in self._mapped:
            return
        with self._tree.lock, contextlib.suppress(OSError):
            size = self._tree.size(path)
            self._tree.remove(path, self._pins)
            self.files += size is not None and self._tree.size(path) is None


def _manifests(tree: Tree) -> Iterator[Listed]:
    for entry in tree.files("results"):
        listed = _listed(tree, entry.path)
        if listed is not None:
            yield listed


def _listed(tree: Tree, path: str) -> Listed | None:
    """Read a manifest by its path; None when it is gone."""
    kind, _, name = os.path.relpath(path, tree.root / "results").partition("/")
    folder, _, key = name.partition("/")
    listed = Listed(path, cast("Kind", kind), key, 0, None)
    if kind not in manifest.KINDS or not digest.is_digest(key) or folder != key[:2]:
        return listed
    try:
        listed = listed._replace(used_ns=os.stat(path).st_mtime_ns)
        with open(path, "rb") as file:
            return listed._replace(results=manifest.decode(listed.kind, key, file.read()))
    except FileNotFoundError:
        return None
    except (manifest.Damaged, OSError):
        return listed


def _whole(tree: Tree, path: str) -> bool | None:
    """Whether a file is what its name says; None when it is gone."""
    found = _identity(tree, path)
    return False if found is None else tree.intact(path, found[0])


def _identity(tree: Tree, path: str) -> tuple[str, str] | None:
    """Digest and name ('' for all but artifacts) of a file by its path; None for others."""
    folder, *parts = os.path.relpath(path, tree.root).split("/")
    if (
        len(parts) != (3 if folder == "artifacts" else 2)
        or not digest.is_digest(parts[1])
        or parts[0] != parts[1][:2]
    ):
        return None
    return parts[1], parts[2] if folder == "artifacts" else ""


def _set_aside(tree: Tree, path: str) -> bool:
    """Quarantine what is still damaged when looked at with the lock held; whether it was."""
    with tree.lock:
        if path.startswith(f"{tree.root}/results/"):
            listed = _listed(tree, path)
            damaged = listed is not None and listed.results is None
        else:
            damaged = _whole(tree, path) is False
        if damaged:
            tree.quarantine(path)
        return damaged


def _needs(tree: Tree, result: Result) -> set[str]:
    return {tree.path_of(result), *map(tree.headers_path, result.closure.headers)}


def _drop_incomplete(tree: Tree, listed: Listed) -> int:
    """Take the results out of a manifest that miss a file; how many."""

    def complete(result: Result) -> bool:
        return all(tree.size(path) is not None for path in _needs(tree, result))

    if all(map(complete, listed.results or ())):
        return 0
    with tree.lock:
        again = _listed(tree, listed.path)
        if again is None or again.results is None:
            return 0
        kept = list(filter(complete, again.results))
        _rewrite(tree, again, kept)
        return len(again.results) - len(kept)


def _rewrite(tree: Tree, listed: Listed, results: list[Result]) -> None:
    """Rewrite a manifest, without marking it as used."""
    tree.write(listed.path, manifest.encode(listed.kind, listed.key, results), durable=False)
    os.utime(listed.path, ns=(listed.used_ns, listed.used_ns))


def _trim_quarantine(tree: Tree, limit: int) -> None:
    """Keep the newest, up to 32 files and ``limit`` bytes."""
    found = []
    for entry in tree.files("quarantine"):
        with contextlib.suppress(OSError):
            state = entry.stat(follow_symlinks=False)
            found.append((state.st_mtime_ns, entry.path, state.st_size))
    kept = 0
    for count, (_, path, size) in enumerate(sorted(found, reverse=True), 1):
        kept += size
        if count > QUARANTINE_FILES or kept > limit:
            with tree.lock, contextlib.suppress(OSError):
                tree.remove(path)

"""Looking after the store: what is in it, whether it is whole, and what has to go."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from warmcc import digest
from warmcc.daemon.store import manifest
from warmcc.daemon.store.pins import Pins, mapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmcc.daemon.store.manifest import Kind, Result
    from warmcc.daemon.store.tree import Tree

_QUARANTINE_FILES = 32
_QUARANTINE_BYTES = 64 << 20
_FILES = ("objects", "artifacts", "headers")


class Listed(NamedTuple):
    """A manifest as it was read. ``damaged`` says why it has no results."""

    path: str
    kind: Kind
    key: str
    used_ns: int
    results: list[Result]
    damaged: bool


def entries(tree: Tree) -> list[dict[str, Any]]:
    found = sorted(_manifests(tree), key=lambda listed: -listed.used_ns)
    return [
        {
            "kind": listed.kind,
            "key": listed.key,
            "name": result.name,
            "file": result.file,
            "size": result.size,
            "created": result.created,
            "used": listed.used_ns / 1e9,
        }
        for listed in found
        for result in listed.results
    ]


def verify(tree: Tree) -> dict[str, int]:
    counts = Counter[str]()
    for folder in _FILES:
        for entry in tree.files(folder):
            expected = _digest_of(tree, entry.path)
            _check(tree, counts, entry.path, lambda path, name=expected: bool(name) and tree.intact(path, name))
    for entry in tree.files("results"):
        _check(tree, counts, entry.path, lambda path: _listed(tree, path, missing_is=None))
    removed = sum(_drop_incomplete(tree, listed) for listed in _manifests(tree))
    tree.recount()
    return {"checked": counts["ok"] + counts["damaged"], "ok": counts["ok"], "damaged": counts["damaged"], "removed": removed}

"""Hits: find the result of a request, verify it, and tell whether its client may rely on it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Literal

from warmcc.daemon.closure import header_sets
from warmcc.daemon.closure.closure import Closures
from warmcc.daemon.store.manifest import Result
from warmcc.daemon.store.shared import SharedStore
from warmcc.daemon.store.store import Store
from warmcc.daemon.system.trails import Paths
from warmcc.protocol import Built


class Hits:
    """Looks up results in this user's store, then in the machine's shared store, if any."""

    def __init__(self, store: Store, closures: Closures, shared: SharedStore | None) -> None:
        self._store = store
        self._closures = closures
        self._shared = shared
        self._settling: set[asyncio.Task[None]] = set()

    async def find(
        self, key: str, *, publish: bool, page: int = 0, paths: Paths | None = None
    ) -> Built | None:
        """The hit for a request key, complete and verified, or None.
        ``publish``: all users may read it. ``page``: what the page showed before anything was
        looked at, ``paths`` among it; the client may rely on it if it can."""
        started = time.monotonic()
        found = await asyncio.to_thread(self._find, key, publish)
        if found is None:
            return None
        result, path = found
        hit = built(result, path, "hit", started)
        await asyncio.to_thread(self.tell_what_was_read, hit, result)
        if page and paths is not None:
            watched = await asyncio.to_thread(self._closures.steady, result.closure, paths)
            if watched is not None:
                hit.page, hit.watched = page, list(watched)
        return hit

    def tell_what_was_read(self, answer: Built, result: Result) -> None:
        """Of an object: what the build printed, and the files of its closure."""
        if (output := result.meta.get("output")) is None:
            return
        answer.output = output
        found = set(result.closure.files)
        for name in result.closure.headers:
            headers = header_sets.decoded(self._store.get_headers(name))
            if headers is None:
                return
            for folder, entries in headers.folders.items():
                found.update(f"{folder}/{entry[0]}" for entry in entries)
        answer.depends = sorted(found)

    def _find(self, key: str, publish: bool) -> tuple[Result, Path] | None:
        found = self._store.find("artifact", key, self._closures)
        if self._shared is not None:
            if found is None:
                return self._shared.find(key)
            self._shared.offer(key, *found, asked=publish)
        return found

    def why_stale(self, key: str) -> str:
        """Why none of the results that are known under a key holds; empty when there is none."""
        known = self._store.results("artifact", key)
        return next((reason for one in known if (reason := self._closures.broken(one.closure))), "")

    async def add(
        self, key: str, result: Result, path: Path, *, publish: bool, paths: Paths | None
    ) -> None:
        """Share a new result, if that is asked for, and prepare its first hit."""
        if self._shared is not None:
            await asyncio.to_thread(self._shared.offer, key, result, path, asked=publish)
        task = asyncio.create_task(self._settle(result, paths))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _settle(self, result: Result, paths: Paths | None) -> None:
        """Check and watch a new artifact and its dependencies: its first hit is then fast."""
        if paths is not None and await asyncio.to_thread(self._closures.holds, result.closure):
            await asyncio.to_thread(self._closures.steady, result.closure, paths)
        await asyncio.to_thread(self._store.look_again, result)


def built(result: Result, path: Path, outcome: Literal["hit", "miss"], started: float) -> Built:
    """The answer with an artifact; ``started`` is when work on the request began (monotonic)."""
    meta = result.meta
    return Built(
        0, str(path), outcome, time.monotonic() - started, meta["commands"], meta["sources"],
        meta["warnings"], meta["way"], files=result.closure.files, kept=not meta.get("unkept"),
    )  # fmt: skip

"""Precompiled headers for NVRTC: what a text includes first, parsed once.

CUB or CUTE take NVRTC seconds, and a kernel behind them a few tenths. A precompiled header is made
in the background, once a text took long, and is valid in one worker only: NVRTC keeps it for an
address of its memory, which all forks of a worker share. NVRTC notices other options and another
beginning by itself, but not an edit within the same second; so the closure of what was read is
checked before each use. With it, a text that fails is compiled once more without.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from warmcc import digest
from warmcc.daemon.closure.closure import ChangedDuringBuild, Closure, Closures
from warmcc.daemon.closure.marker import Marker
from warmcc.daemon.forking.forker import Forker
from warmcc.daemon.kernel.workers import Crashed, WorkerFailed, Workers
from warmcc.daemon.system.background import Background
from warmcc.daemon.system.bounds import remove

log = logging.getLogger(__name__)

_LONG_SECONDS = 0.7  # a text that takes as long is worth a precompiled header
_LIMIT = 4  # files, of up to 200 MB
_TRIED = 200  # beginnings for which none is made again
_LEADING = re.compile(
    r"(?:[ \t]*(?://[^\n]*|/\*.*?\*/[ \t]*|#[ \t]*(?:include|define|pragma)\b(?:\\\n|[^\n])*)?\n)*",
    re.S,
)
_BODY = "__global__ void warmcc_stops_here() {}\n"


def leading(text: str) -> str:
    r"""The lines that a text begins with: includes, macros, comments; empty without an include.

    >>> leading('// x\n#include <a.h>\n#define B 1\n#ifdef C\n#include <d.h>\n')
    '// x\n#include <a.h>\n#define B 1\n'
    """
    match = _LEADING.match(text)
    found = match[0] if match is not None else ""
    return found if re.search(r"^[ \t]*#[ \t]*include\b", found, re.M) else ""


class Reader(Protocol):
    """Says what a text may read: files, paths that must stay missing, and why that is unknown."""

    def __call__(self, text: str) -> tuple[list[str], list[str], str]: ...


@dataclass
class _Ready:
    worker: Forker
    path: Path
    closure: Closure


@dataclass(frozen=True)
class Beginning:
    """What a precompiled header is made for."""

    library: str
    options: tuple[str, ...]
    file: str
    text: str

    @property
    def key(self) -> str:
        return digest.of_value([self.library, self.options, self.file, self.text])


class PrecompiledHeaders:
    """Those of all workers. One per daemon."""

    def __init__(
        self, workers: Workers, closures: Closures, background: Background, timeout: float
    ) -> None:
        self._workers = workers
        self._closures = closures
        self._background = background
        self._timeout = timeout
        self._ready: dict[str, _Ready] = {}
        self._tried: dict[str, None] = {}
        self._making: asyncio.Task[None] | None = None
        self._folder: Path | None = None

    async def find(self, beginning: Beginning) -> Path | None:
        """The one to use now, if there is one."""
        found = self._ready.get(beginning.key)
        if found is None:
            return None
        is_current = self._workers.has(beginning.library, found.worker)
        if not is_current or not await asyncio.to_thread(self._closures.holds, found.closure):
            self.forget(beginning)
            return None
        self._ready[beginning.key] = self._ready.pop(beginning.key)  # used last
        return found.path

    def forget(self, beginning: Beginning) -> None:
        """It is of no use; another one may be made."""
        found = self._ready.pop(beginning.key, None)
        self._tried.pop(beginning.key, None)
        if found is not None:
            remove(found.path)

    def want(
        self, beginning: Beginning, took: float, roots: list[str], folders: list[str], read: Reader
    ) -> None:
        """A text with this beginning took so many seconds: make one when the machine is quiet."""
        if took < _LONG_SECONDS or not beginning.text or beginning.key in self._tried:
            return
        if self._making is not None and not self._making.done():
            return  # the next text asks again
        while len(self._tried) >= _TRIED:
            del self._tried[next(iter(self._tried))]
        self._tried[beginning.key] = None
        self._making = asyncio.create_task(self._make(beginning, roots, folders, read))

    async def _make(
        self, beginning: Beginning, roots: list[str], folders: list[str], read: Reader
    ) -> None:
        try:
            await self._background.quiet()
            started = time.monotonic()
            worker = await self._workers.worker(beginning.library)
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="warmcc-nvrtc-"))
            path = self._folder / f"{beginning.key[:16]}.pch"
            marker = await asyncio.to_thread(Marker.take, self._folder)
            files, absent, unknown = await asyncio.to_thread(read, beginning.text)
            if unknown:
                return
            job = {
                "source": beginning.text + _BODY, "file": beginning.file, "names": [],
                "options": [f"--create-pch={path}", *beginning.options], "made": "",
            }  # fmt: skip
            with self._background.step() as step:
                gives_way = functools.partial(self._background.started, step)
                reply = await self._workers.compile(
                    beginning.library, job, self._timeout, aside=gives_way
                )
            if "failed" in reply or not path.exists():
                log.info("no precompiled header: %s", reply.get("failed") or reply.get("log"))
                remove(path)
                return
            closure = await asyncio.to_thread(
                self._closures.record, files, roots, folders, marker, texts=[beginning.text],
                absent=absent,
            )  # fmt: skip
        except (ChangedDuringBuild, Crashed, WorkerFailed, OSError, asyncio.TimeoutError) as reason:
            log.info("no precompiled header: %s", reason)
            return
        while len(self._ready) >= _LIMIT:
            remove(self._ready.pop(next(iter(self._ready))).path)
        self._ready[beginning.key] = _Ready(worker, path, closure)
        log.info("precompiled what kernels include in %.1f s", time.monotonic() - started)

    async def close(self) -> None:
        if self._making is not None:
            self._making.cancel()
            await asyncio.gather(self._making, return_exceptions=True)
        if self._folder is not None:
            remove(self._folder)

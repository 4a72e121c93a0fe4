"""The compile workers: one process per libnvrtc in use, started on demand, replaced on failure."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from warmcc import nvrtc
from warmcc.daemon.forking import forker
from warmcc.daemon.forking.forker import FAILURES, Forker, Forkers
from warmcc.daemon.kernel import worker_main
from warmcc.daemon.system import resources
from warmcc.daemon.system.bounds import remove
from warmcc.daemon.toolchain.identity import Fingerprint, fingerprint

log = logging.getLogger(__name__)

START_SECONDS = 60.0  # reading the library from a cold disk takes long
_ENDING_SECONDS = 1.0
_LIMIT = 2
Key = tuple[str, "Fingerprint | None"]


class WorkerFailed(Exception):
    """NVRTC cannot be loaded, or no process can be had. Not the caller's fault."""


class Crashed(Exception):
    """NVRTC ended twice, without an answer, while it compiled one text."""


class Workers:
    """Runs NVRTC in processes of which each serves one library. ``memory`` is the most that one
    job may take, in bytes (0: all of the machine's); ``marks`` are variables that each gets."""

    def __init__(self, *, memory: int = 0, marks: dict[str, str] | None = None) -> None:
        self._memory = memory or resources.total_memory()
        self._marks = marks or {}
        self._workers: Forkers[Key] = Forkers()
        self._empty: Path | None = None  # where NVRTC runs

    def has(self, library: str, worker: Forker) -> bool:
        """Whether a worker is the one that compiles with a library now."""
        return self._workers.ready().get((library, fingerprint(library))) is worker

    async def worker(self, library: str) -> Forker:
        """The worker of a library. Raises WorkerFailed, OSError, EOFError, asyncio.TimeoutError."""
        return await self._worker((library, fingerprint(library)))

    async def compile(
        self, library: str, job: dict[str, Any], seconds: float,
        aside: Callable[[int], None] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """The reply to a job (see worker_main.py). Raises WorkerFailed, Crashed,
        asyncio.TimeoutError; a job that is cancelled, or takes longer than ``seconds``, is ended.
        One that gives way to builds tells ``aside`` its session.
        """
        for attempt in (1, 2):
            key = (library, fingerprint(library))
            worker = None
            try:
                worker = await self._worker(key)
                reply = await asyncio.wait_for(self._job(worker, job, aside), seconds)
            except asyncio.TimeoutError:  # one of the failures, too
                raise
            except FAILURES as error:
                log.warning("a compile worker of %s failed: %r", library, error)
                if worker is not None and not await _ends(worker.process):
                    if attempt == 2:
                        raise Crashed("NVRTC crashed while it compiled this text") from error
                else:
                    await self._workers.end(key)
                    if attempt == 2:
                        raise WorkerFailed(f"no process runs NVRTC: {error!r}") from error
                if job["made"]:
                    with contextlib.suppress(OSError):
                        os.unlink(job["made"])
                continue
            if "broken" in reply:
                raise WorkerFailed(str(reply["broken"]))
            return reply
        raise AssertionError

    async def _job(
        self, worker: Forker, job: dict[str, Any], aside: Callable[[int], None] | None
    ) -> dict[str, Any]:
        if self._empty is None:
            self._empty = Path(tempfile.mkdtemp(prefix="warmcc-nvrtc-"))
        job = {**job, "aside": aside is not None, "folder": str(self._empty)}
        async with worker.asked(job) as reader:
            if aside is not None:
                aside((await forker.receive(reader))["pid"])
            return await forker.receive(reader)

    async def _worker(self, key: Key) -> Forker:
        for other in self._workers.known():
            if other != key and (other[0] == key[0] or len(self._workers.known()) >= _LIMIT):
                await self._workers.end(other)  # the library was upgraded, or there are enough
        return await self._workers.get(key, lambda: self._start(key[0]))

    async def _start(self, library: str) -> Forker:
        argv = [
            sys.executable, "-I", "-S", str(Path(worker_main.__file__)),
            str(Path(nvrtc.__file__)), library, str(self._memory), str(os.getpid()),
        ]  # fmt: skip
        made = await forker.start(argv, forker.inherited() | self._marks, START_SECONDS)
        if "broken" in made.said:
            await made.end()
            raise WorkerFailed(str(made.said["broken"]))
        return made

    async def close(self) -> None:
        """End all of them; none is left when this returns."""
        await self._workers.close()
        if self._empty is not None:
            remove(self._empty)


async def _ends(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process has ended, or is about to: its sockets are closed a moment before."""
    until = time.monotonic() + _ENDING_SECONDS
    while process.poll() is None:
        if time.monotonic() > until:
            return False
        await asyncio.sleep(0.02)
    return True

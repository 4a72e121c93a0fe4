"""The compile workers: one process per libnvrtc in use, started on demand, replaced on failure."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warmcc import nvrtc
from warmcc.daemon.kernel import worker_main
from warmcc.daemon.system import resources
from warmcc.daemon.system.bounds import remove
from warmcc.daemon.toolchain.identity import Fingerprint, fingerprint

log = logging.getLogger(__name__)

START_SECONDS = 60.0  # reading the library from a cold disk takes long
_ENDING_SECONDS = 1.0
_LIMIT = 2
_FAILURES = (OSError, EOFError, asyncio.IncompleteReadError)
_INHERITED = ("PATH", "HOME", "LD_LIBRARY_PATH", "TMPDIR")
Key = tuple[str, "Fingerprint | None"]


class WorkerFailed(Exception):
    """NVRTC cannot be loaded, or no process can be had. Not the caller's fault."""


class Crashed(Exception):
    """NVRTC ended twice, without an answer, while it compiled one text."""


@dataclass(eq=False)
class Worker:
    """A running worker, the end of its control socket, its folder, and NVRTC's version."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    folder: Path
    version: tuple[int, int]


class Workers:
    """Runs NVRTC in processes of which each serves one library. ``memory`` is the most that one
    job may take, in bytes (0: all of the machine's); ``marks`` are variables that each gets."""

    def __init__(self, *, memory: int = 0, marks: dict[str, str] | None = None) -> None:
        self._memory = memory or resources.total_memory()
        self._marks = marks or {}
        self._workers: dict[Key, asyncio.Task[Worker]] = {}
        self.started = 0
        self.failed = 0

    def has(self, library: str, worker: Worker) -> bool:
        """Whether a worker is the one that compiles with a library now."""
        task = self._workers.get((library, fingerprint(library)))
        is_there = task is not None and task.done() and not task.cancelled()
        return is_there and task is not None and not task.exception() and task.result() is worker

    async def worker(self, library: str) -> Worker:
        """The worker of a library. Raises WorkerFailed, OSError, EOFError."""
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
            except asyncio.TimeoutError:  # an OSError, too
                raise
            except _FAILURES as error:
                self.failed += 1
                log.warning("a compile worker of %s failed: %r", library, error)
                if worker is not None and not await _ends(worker.process):
                    if attempt == 2:
                        raise Crashed("NVRTC crashed while it compiled this text") from error
                else:
                    await self._end(key)
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

    @staticmethod
    async def _job(
        worker: Worker, job: dict[str, Any], aside: Callable[[int], None] | None
    ) -> dict[str, Any]:
        mine, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(worker.control, [b"j"], [theirs.fileno()])
            reader, writer = await asyncio.open_connection(sock=mine)
        except BaseException:
            mine.close()
            raise
        try:
            data = json.dumps(
                {**job, "aside": aside is not None, "folder": str(worker.folder / "empty")}
            ).encode()
            writer.write(struct.pack("!I", len(data)) + data)
            await writer.drain()
            if aside is not None:
                aside((await _read(reader))["pid"])
            return await _read(reader)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _worker(self, key: Key) -> Worker:
        for other in [known for known in self._workers if known != key]:
            if other[0] == key[0] or len(self._workers) >= _LIMIT:
                await self._end(other)  # the library was upgraded, or there are enough
        if key not in self._workers:
            self._workers[key] = asyncio.create_task(self._start(key[0]))
        starting = self._workers[key]
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            if starting.cancelled():  # it was ended: that is no reason to give this request up
                raise EOFError("it was stopped while starting") from None
            raise
        except WorkerFailed:
            self._workers.pop(key, None)
            raise

    async def _start(self, library: str) -> Worker:
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="warmcc-nvrtc-"))
        (folder / "empty").mkdir()
        mine, theirs = socket.socketpair()
        with theirs:
            try:
                process = subprocess.Popen(
                    [
                        sys.executable, "-I", "-S", str(Path(worker_main.__file__)),
                        str(Path(nvrtc.__file__)), library, str(self._memory), str(os.getpid()),
                    ],
                    stdin=theirs.fileno(), stdout=subprocess.DEVNULL, cwd="/",
                    env={**environment, **self._marks}, start_new_session=True,
                )  # fmt: skip
            except BaseException:
                mine.close()
                remove(folder)
                raise
        mine.setblocking(False)
        self.started += 1
        try:
            loop = asyncio.get_running_loop()
            line = await asyncio.wait_for(loop.sock_recv(mine, 4096), START_SECONDS)
            if not line:
                raise EOFError("it exited while it loaded NVRTC")
            said = json.loads(line)
            if "broken" in said:
                raise WorkerFailed(str(said["broken"]))
        except BaseException:
            process.kill()
            process.wait()
            mine.close()
            remove(folder)
            raise
        mine.setblocking(True)
        return Worker(process, mine, folder, tuple(said["version"]))

    async def _end(self, key: Key) -> None:
        task = self._workers.pop(key, None)
        if task is None:
            return
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            worker = await task
            worker.control.close()
            worker.process.kill()
            await asyncio.to_thread(worker.process.wait)
            await asyncio.to_thread(remove, worker.folder)

    async def close(self) -> None:
        """End all of them; none is left when this returns."""
        for key in list(self._workers):
            await self._end(key)


async def _read(reader: asyncio.StreamReader) -> dict[str, Any]:
    (size,) = struct.unpack("!I", await reader.readexactly(4))
    found: dict[str, Any] = json.loads(await reader.readexactly(size))
    return found


async def _ends(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process has ended, or is about to: its sockets are closed a moment before."""
    until = time.monotonic() + _ENDING_SECONDS
    while process.poll() is None:
        if time.monotonic() > until:
            return False
        await asyncio.sleep(0.02)
    return True

"""A process that loads something heavy once, and forks a child for each job: how it is started,
asked and ended.

Its standard input is a Unix socket. It says in one message that it is ready. Each message to it is
one descriptor: a socket on which a child finds its job and leaves its reply, both JSON behind a
four-byte length.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

FAILURES = (OSError, EOFError, asyncio.TimeoutError, asyncio.IncompleteReadError)
_INHERITED = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "TMPDIR")
K = TypeVar("K")


def inherited() -> dict[str, str]:
    """The variables of the daemon that each of these processes gets."""
    return {name: os.environ[name] for name in _INHERITED if name in os.environ}


@dataclass(eq=False)
class Forker:
    """A running process, this end of its socket, and what it said when it was ready."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    said: dict[str, Any] = field(default_factory=dict)
    jobs: int = 0
    used: float = field(default_factory=time.monotonic)

    @contextlib.asynccontextmanager
    async def asked(self, job: Mapping[str, Any]) -> AsyncIterator[asyncio.StreamReader]:
        """Give a job to a child of its own; ``receive`` reads what that replies. Raises OSError."""
        mine, theirs = socket.socketpair()
        with theirs, _closed_on_error(mine):
            socket.send_fds(self.control, [b"j"], [theirs.fileno()])
        self.jobs += 1
        self.used = time.monotonic()
        with _closed_on_error(mine):
            reader, writer = await asyncio.open_connection(sock=mine)
        try:
            data = json.dumps(job).encode()
            writer.write(struct.pack("!I", len(data)) + data)
            await writer.drain()
            yield reader
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def end(self) -> None:
        """Kill it and wait for it."""
        self.control.close()
        self.process.kill()
        await asyncio.to_thread(self.process.wait)


async def start(argv: list[str], environment: dict[str, str], seconds: float) -> Forker:
    """Start one, and wait until it is ready. Raises OSError, EOFError, asyncio.TimeoutError;
    nothing is left of one that does not become ready."""
    mine, theirs = socket.socketpair()
    with theirs, _closed_on_error(mine):
        process = subprocess.Popen(
            argv, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, env=environment, cwd="/",
            start_new_session=True,
        )  # fmt: skip
    made = Forker(process, mine)
    mine.setblocking(False)
    try:
        loop = asyncio.get_running_loop()
        line = await asyncio.wait_for(loop.sock_recv(mine, 4096), seconds)
        if not line:
            raise EOFError("it exited while it started")
        made.said = json.loads(line)
    except BaseException:
        await asyncio.shield(made.end())
        raise
    mine.setblocking(True)
    return made


async def receive(reader: asyncio.StreamReader) -> dict[str, Any]:
    """The next reply of a child. Raises asyncio.IncompleteReadError where it ended without one."""
    (size,) = struct.unpack("!I", await reader.readexactly(4))
    found: dict[str, Any] = json.loads(await reader.readexactly(size))
    return found


class Forkers(Generic[K]):
    """At most one process for each key; those who want the same one wait for the same start."""

    def __init__(self) -> None:
        self._tasks: dict[K, asyncio.Task[Forker]] = {}

    def known(self) -> list[K]:
        """The keys of those that run or start."""
        return list(self._tasks)

    def ready(self) -> dict[K, Forker]:
        """Those that are ready."""
        return {
            key: task.result()
            for key, task in self._tasks.items()
            if task.done() and not task.cancelled() and task.exception() is None
        }

    async def get(self, key: K, starts: Callable[[], Coroutine[None, None, Forker]]) -> Forker:
        """The one of a key, started where there is none. Raises what ``starts`` does, EOFError."""
        if key not in self._tasks:
            self._tasks[key] = asyncio.create_task(starts())
        starting = self._tasks[key]
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            if starting.cancelled():  # somebody ended it: that is no reason to give this request up
                raise EOFError("it was stopped while starting") from None
            raise
        except BaseException:
            if self._tasks.get(key) is starting:
                del self._tasks[key]
            raise

    async def end(self, key: K) -> None:
        """End the one of a key, if there is one."""
        task = self._tasks.pop(key, None)
        if task is None:
            return
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await (await task).end()

    async def close(self) -> None:
        """End all of them; none is left when this returns."""
        for key in self.known():
            await self.end(key)


@contextlib.contextmanager
def _closed_on_error(end: socket.socket) -> Iterator[None]:
    """Close this end of a pair now when the process that was to have it does not start."""
    try:
        yield
    except BaseException:
        end.close()
        raise

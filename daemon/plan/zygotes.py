"""The zygotes: one per Python and torch in use, started on demand, replaced on failure."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import psutil

from warmcc import status
from warmcc.daemon.plan import requested, zygote_main
from warmcc.daemon.plan.stock import Plan, parse
from warmcc.daemon.system import bounds, landlock
from warmcc.daemon.system.resources import processors
from warmcc.daemon.system.sandbox import Sandbox
from warmcc.request import Interpreter, Request

log = logging.getLogger(__name__)

START_SECONDS = 120.0  # importing torch from a cold disk takes long
JOB_SECONDS = 60.0
_FAILURES = (OSError, EOFError, asyncio.TimeoutError, asyncio.IncompleteReadError)
_NOT_STOCKS = {
    "call", "module_name", "interpreter", "environment", "name", "build_directory", "verbose",
    "use_pch",
}  # fmt: skip
_INLINE_ONLY = {
    "cpp_sources", "cuda_sources", "sycl_sources", "functions", "with_pytorch_error_handling",
    "no_implicit_headers",
}  # fmt: skip
_LOAD_ONLY = {"sources", "is_standalone"}
# What torch and the libraries that it loads look at beside their own files: processors, and GPUs.
_LOOKED_AT = tuple(map(Path, ("/sys/devices", "/sys/bus/pci", "/proc/self", "/proc/driver/nvidia")))
_INHERITED = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "TMPDIR")


class ZygoteFailed(Exception):
    """A zygote could not be started, or two in a row failed at one job. Not the caller's fault."""


@dataclass(frozen=True)
class StockError:
    """The exception that stock raised: the name of a builtin type, and its arguments."""

    type: str
    message: str
    errno: int | None = None
    filename: str | None = None


@dataclass(eq=False)
class Zygote:
    """A running zygote and the end of its control socket."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    torch: str
    jobs: int = 0
    used: float = field(default_factory=time.monotonic)


def _identity(interpreter: Interpreter) -> tuple[object, ...]:
    """What tells zygotes apart; an upgraded torch has another version.py.
    Raises OSError when there is no torch."""
    found = Path(interpreter.torch_dir, "version.py").stat()
    return (
        interpreter.executable, interpreter.torch_dir, found.st_mtime_ns, found.st_ino,
        found.st_size,
    )  # fmt: skip


def _unusable(task: asyncio.Task[Zygote]) -> bool:
    return task.cancelled() or task.exception() is not None


@contextlib.contextmanager
def _closed_on_error(end: socket.socket) -> Iterator[None]:
    """Close this end of a pair now when the process that was to have it does not start."""
    try:
        yield
    except BaseException:
        end.close()
        raise


class ZygotePool:
    """At most ``limit`` zygotes; the least recently used one ends to make room.
    ``marks`` are variables that each gets (see ``system/remains.py``)."""

    def __init__(
        self, limit: int = 4, *, marks: dict[str, str] | None = None, sandbox: Sandbox | None = None
    ) -> None:
        self._limit = limit
        self._sandbox = sandbox
        self._marks = marks or {}
        self._zygotes: dict[tuple[object, ...], asyncio.Task[Zygote]] = {}
        self._forks = asyncio.Semaphore(2 * processors())
        self.started = 0
        self.jobs = 0
        self.failed = 0

    async def plan(self, request: Request) -> Plan | StockError:
        """Ask stock, in a fork of the zygote of the request's interpreter. Raises ZygoteFailed."""
        for attempt in (1, 2):
            zygote = None
            try:
                zygote = await self._zygote(request.interpreter)
                return await self._plan(request, zygote)
            except _FAILURES as error:
                await self._failed(request, zygote, error)
                if attempt == 2:
                    raise ZygoteFailed(f"cannot ask torch for its plan: {error!r}") from error
        raise AssertionError

    async def _failed(self, request: Request, zygote: Zygote | None, error: BaseException) -> None:
        """End the zygote that failed, unless another one is in its place already."""
        self.failed += 1
        log.warning("zygote of %s failed: %r", request.interpreter.executable, error)
        with contextlib.suppress(OSError):
            key = _identity(request.interpreter)
            task = self._zygotes.get(key)
            if task is not None and task.done() and (_unusable(task) or task.result() is zygote):
                await self._end(key)

    async def _plan(self, request: Request, zygote: Zygote) -> Plan | StockError:
        scratch = await asyncio.to_thread(
            tempfile.mkdtemp, prefix="warmcc-plan-", dir=self._plans()
        )
        try:
            async with self._forks:
                reply = await asyncio.wait_for(
                    self._job(zygote, self._describe(request, scratch)), JOB_SECONDS
                )
        finally:
            await asyncio.to_thread(bounds.remove, Path(scratch))
        self.jobs += 1
        if (error := reply.get("error")) is not None:
            return StockError(**error)
        return parse(reply["ninja"], reply["sources"], reply["warnings"], scratch)

    @staticmethod
    def _plans() -> str:
        """Where plans are made."""
        folder = os.path.join(tempfile.gettempdir(), "plans")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        return folder

    @staticmethod
    def _describe(request: Request, scratch: str) -> dict[str, Any]:
        other = _LOAD_ONLY if request.call == "load_inline" else _INLINE_ONLY
        arguments = [name for name in request.__struct_fields__ if name not in _NOT_STOCKS | other]
        plain = msgspec.to_builtins(request)
        defaults = {
            field.name: [] if field.default is msgspec.NODEFAULT else field.default
            for field in msgspec.structs.fields(Request)
            if field.name in arguments
        }
        return {
            "request": plain, "arguments": arguments, "defaults": defaults,
            "environment": requested.build_environment(request), "scratch": scratch,
        }  # fmt: skip

    async def _job(self, zygote: Zygote, job: dict[str, Any]) -> dict[str, Any]:
        mine, theirs = socket.socketpair()
        with theirs, _closed_on_error(mine):
            socket.send_fds(zygote.control, [b"j"], [theirs.fileno()])
        zygote.jobs += 1
        zygote.used = time.monotonic()
        with _closed_on_error(mine):
            reader, writer = await asyncio.open_connection(sock=mine)
        try:
            data = json.dumps(job).encode()
            writer.write(struct.pack("!I", len(data)) + data)
            await writer.drain()
            (size,) = struct.unpack("!I", await reader.readexactly(4))
            reply: dict[str, Any] = json.loads(await reader.readexactly(size))
            return reply
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _zygote(self, interpreter: Interpreter) -> Zygote:
        key = _identity(interpreter)
        for other in [k for k in self._zygotes if k[:2] == key[:2] and k != key]:
            await self._end(other)  # torch was upgraded
        if key not in self._zygotes:
            while len(self._zygotes) >= self._limit:
                done = {
                    k: t.result().used
                    for k, t in self._zygotes.items()
                    if t.done() and not t.exception()
                }
                await self._end(
                    min(done, key=lambda k: done[k]) if done else next(iter(self._zygotes))
                )
            self._zygotes[key] = asyncio.create_task(self._start(interpreter))
        starting = self._zygotes[key]
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            if starting.cancelled():  # somebody ended it: that is no reason to give this request up
                raise EOFError("it was stopped while starting") from None
            raise

    async def _start(self, interpreter: Interpreter) -> Zygote:
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        # No thread pools: a process that is forked must have one thread.
        environment |= {
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "WARMCC_INSTALL": "0",  # it asks stock torch
            **self._marks,
        }
        mine, theirs = socket.socketpair()
        with theirs, _closed_on_error(mine):
            argv = [interpreter.executable, "-I", str(Path(zygote_main.__file__))]
            argv += [os.path.dirname(interpreter.torch_dir), str(os.getpid())]
            if self._sandbox is not None:
                # All plans are made below one folder, and each may write its own only. Without a
                # list of architectures torch asks the GPUs.
                gpus = sorted(map(str, Path("/dev").glob("nvidia*")))
                reads, writes = [Path(zygote_main.__file__), *_LOOKED_AT], [self._plans(), *gpus]
                argv, environment = self._sandbox.command(
                    [*argv, landlock.__file__, *gpus], environment, reads, writes
                )
            process = subprocess.Popen(
                argv, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, env=environment, cwd="/",
                start_new_session=True,
            )  # fmt: skip
        mine.setblocking(False)
        self.started += 1
        loop = asyncio.get_running_loop()
        try:
            line = await asyncio.wait_for(loop.sock_recv(mine, 4096), START_SECONDS)
            if not line:
                raise EOFError("it exited while importing torch")
        except BaseException:
            process.kill()
            process.wait()
            mine.close()
            raise
        mine.setblocking(True)
        return Zygote(process, mine, json.loads(line)["torch"])

    async def _end(self, key: tuple[object, ...]) -> None:
        task = self._zygotes.pop(key, None)
        if task is None:
            return
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            zygote = await task
            zygote.control.close()
            zygote.process.kill()
            await asyncio.to_thread(zygote.process.wait)

    def report(self) -> list[status.Zygote]:
        """One row per zygote, for ``warmcc status``."""
        rows = []
        for task in list(self._zygotes.values()):
            if task.done() and not task.cancelled() and task.exception() is None:
                zygote = task.result()
                with contextlib.suppress(psutil.Error):
                    rss = psutil.Process(zygote.process.pid).memory_info().rss
                    rows.append(status.Zygote(zygote.process.pid, zygote.torch, rss, zygote.jobs))
        return rows

    async def close(self) -> None:
        """End all of them; none is left when this returns."""
        for key in list(self._zygotes):
            await self._end(key)

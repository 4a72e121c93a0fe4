"""The zygotes: one per Python and torch in use, started on demand, replaced on failure."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil

from warmcc import digest, status
from warmcc.daemon.forking import forker
from warmcc.daemon.forking.forker import FAILURES, Forker, Forkers
from warmcc.daemon.plan import requested, zygote_main
from warmcc.daemon.plan.stock import Plan, parse
from warmcc.daemon.system import bounds, landlock
from warmcc.daemon.system.resources import processors
from warmcc.daemon.system.sandbox import Sandbox
from warmcc.daemon.toolchain import cuda as toolkit
from warmcc.request import Interpreter, Request

log = logging.getLogger(__name__)

START_SECONDS = 120.0  # importing torch from a cold disk takes long
JOB_SECONDS = 60.0
_KNOWN = 1000  # answers about GPUs
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
Key = tuple[object, ...]


class ZygoteFailed(Exception):
    """A zygote could not be started, or two in a row failed at one job. Not the caller's fault."""


@dataclass(frozen=True)
class StockError:
    """The exception that stock raised: the name of a builtin type, and its arguments."""

    type: str
    message: str
    errno: int | None = None
    filename: str | None = None


def _identity(interpreter: Interpreter) -> Key:
    """What tells zygotes apart; an upgraded torch has another version.py.
    Raises OSError when there is no torch."""
    found = Path(interpreter.torch_dir, "version.py").stat()
    return (
        interpreter.executable, interpreter.torch_dir, found.st_mtime_ns, found.st_ino,
        found.st_size,
    )  # fmt: skip


def _what_is_visible(request: Request, environment: dict[str, str]) -> str:
    """All that torch's answer about the GPUs depends on."""
    variables = sorted(item for item in environment.items() if item[0].startswith("CUDA_"))
    return digest.of_value([request.interpreter.torch_dir, variables, toolkit.gpus()])


class ZygotePool:
    """At most ``limit`` zygotes; the least recently used one ends to make room.
    ``marks`` are variables that each gets (see ``system/remains.py``)."""

    def __init__(
        self, limit: int = 4, *, marks: dict[str, str] | None = None, sandbox: Sandbox | None = None
    ) -> None:
        self._limit = limit
        self._sandbox = sandbox
        self._marks = marks or {}
        self._zygotes: Forkers[Key] = Forkers()
        self._forks = asyncio.Semaphore(2 * processors())
        # What torch said of the GPUs, by all that its answer depends on; only where it saw some, as
        # a driver may be loaded after the daemon was started
        self._gpus: dict[str, list[list[int]]] = {}

    async def begin(self, interpreter: Interpreter) -> None:
        """Start an interpreter's zygote, unless it runs; the first plan tells why it cannot."""
        with contextlib.suppress(*FAILURES):
            await self._zygote(interpreter)

    async def plan(self, request: Request) -> Plan | StockError:
        """Ask stock, in a fork of the zygote of the request's interpreter. Raises ZygoteFailed."""
        for attempt in (1, 2):
            zygote = None
            try:
                zygote = await self._zygote(request.interpreter)
                return await self._plan(request, zygote)
            except FAILURES as error:
                await self._failed(request, zygote, error)
                if attempt == 2:
                    raise ZygoteFailed(f"cannot ask torch for its plan: {error!r}") from error
        raise AssertionError

    async def _failed(self, request: Request, zygote: Forker | None, error: BaseException) -> None:
        """End the zygote that failed, unless another one is in its place already."""
        log.warning("zygote of %s failed: %r", request.interpreter.executable, error)
        with contextlib.suppress(OSError):
            key = _identity(request.interpreter)
            if zygote is not None and self._zygotes.ready().get(key) is zygote:
                await self._zygotes.end(key)

    async def _plan(self, request: Request, zygote: Forker) -> Plan | StockError:
        scratch = await asyncio.to_thread(
            tempfile.mkdtemp, prefix="warmcc-plan-", dir=self._plans()
        )
        try:
            job = self._describe(request, scratch)
            visible = await asyncio.to_thread(_what_is_visible, request, job["environment"])
            job["gpus"] = self._gpus.get(visible, [])
            async with self._forks:
                reply = await asyncio.wait_for(self._job(zygote, job), JOB_SECONDS)
            if found := reply.get("gpus"):
                if len(self._gpus) > _KNOWN:
                    self._gpus.clear()
                self._gpus[visible] = found
        finally:
            await asyncio.to_thread(bounds.remove, Path(scratch))
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

    @staticmethod
    async def _job(zygote: Forker, job: dict[str, Any]) -> dict[str, Any]:
        async with zygote.asked(job) as reader:
            return await forker.receive(reader)

    async def _zygote(self, interpreter: Interpreter) -> Forker:
        key = _identity(interpreter)
        for other in self._zygotes.known():
            if other[:2] == key[:2] and other != key:
                await self._zygotes.end(other)  # torch was upgraded
        while key not in (known := self._zygotes.known()) and len(known) >= self._limit:
            used = {other: zygote.used for other, zygote in self._zygotes.ready().items()}
            await self._zygotes.end(min(known, key=lambda other: used.get(other, math.inf)))
        return await self._zygotes.get(key, lambda: self._start(interpreter))

    async def _start(self, interpreter: Interpreter) -> Forker:
        # No thread pools: a process that is forked must have one thread.
        environment = forker.inherited() | {
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "WARMCC_INSTALL": "0",  # it asks stock torch
            **self._marks,
        }
        argv = [interpreter.executable, "-I", str(Path(zygote_main.__file__))]
        argv += [os.path.dirname(interpreter.torch_dir), str(os.getpid())]
        if self._sandbox is not None:
            # All plans are made below one folder, and each may write its own only. Without a list
            # of architectures torch asks the GPUs.
            gpus = sorted(map(str, Path("/dev").glob("nvidia*")))
            reads, writes = [Path(zygote_main.__file__), *_LOOKED_AT], [self._plans(), *gpus]
            argv, environment = self._sandbox.command(
                [*argv, landlock.__file__, *gpus], environment, reads, writes
            )
        return await forker.start(argv, environment, START_SECONDS)

    def report(self) -> list[status.Zygote]:
        """One row per zygote, for ``warmcc status``."""
        rows = []
        for zygote in self._zygotes.ready().values():
            with contextlib.suppress(psutil.Error):
                rss = psutil.Process(zygote.process.pid).memory_info().rss
                torch = zygote.said["torch"]
                rows.append(status.Zygote(zygote.process.pid, torch, rss, zygote.jobs))
        return rows

    async def close(self) -> None:
        """End all of them; none is left when this returns."""
        await self._zygotes.close()

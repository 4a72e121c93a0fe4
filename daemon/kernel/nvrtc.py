"""NVRTC, in the processes that compile: with what it may read, and with precompiled headers."""

from __future__ import annotations

import asyncio
import functools
import os
import time
from pathlib import Path
from typing import Any

from warmcc import kernels
from warmcc.config import Config
from warmcc.daemon.closure.closure import Closures
from warmcc.daemon.kernel.headers import Beginning, PrecompiledHeaders, leading
from warmcc.daemon.kernel.includes import ByMacro, Includes
from warmcc.daemon.kernel.makers import MADE, DoesNotCompile, Made, Maker, NotHere
from warmcc.daemon.kernel.workers import Crashed, WorkerFailed, Workers
from warmcc.daemon.system.background import Background
from warmcc.daemon.toolchain.identity import fingerprint
from warmcc.request import KernelRequest

# Options of NVRTC that need more than one text, or write files.
_REFUSED = ("-dlto", "--dlto", "-rdc", "--relocatable-device-code", "--device-c", "-dc")
_FORCED = ("--pre-include=", "-include=")
_SILENT = "--pch-messages=false"


class Nvrtc:
    """Compiles with NVRTC. One per daemon."""

    def __init__(
        self, config: Config, closures: Closures, background: Background, marks: dict[str, str]
    ) -> None:
        self._timeout = config.build_timeout
        self._workers = Workers(memory=config.step_memory, marks=marks)
        self._headers = PrecompiledHeaders(self._workers, closures, background, self._timeout)
        self._includes = Includes()

    async def close(self) -> None:
        """End the processes that compile."""
        await self._headers.close()
        await self._workers.close()

    @staticmethod
    def maker(request: KernelRequest, own: list[str]) -> Maker:
        """What compiles a request; ``own`` are the caller's folders of headers. Raises NotHere."""
        for option in request.options:
            if option.partition("=")[0] in _REFUSED:
                raise NotHere(f"unsupported flags: {option}", True)
        found = fingerprint(request.library)
        if found is None:
            raise NotHere(f"{request.library or 'libnvrtc'} is not there", True)
        real = os.path.realpath(request.library)
        beside = os.path.dirname(real)
        builtins = [
            [name, *(fingerprint(os.path.join(beside, name)) or ())]
            for name in sorted(os.listdir(beside)) if name.startswith("libnvrtc-builtins")
        ]  # fmt: skip
        folders = [*own, *request.system_dirs]
        return Maker([real, *found, builtins], folders, request.system_dirs)

    async def run(self, request: KernelRequest, maker: Maker, folder: Path) -> Made:
        """Compile in a folder. Raises DoesNotCompile, NotHere."""
        made, text = folder / MADE, kernels.source_text(request)
        options = kernels.nvrtc_options(request)
        job = {"source": text, "file": request.file, "names": request.names, "made": str(made)}
        reader = functools.partial(self._reads, request, maker)
        reading = asyncio.create_task(asyncio.to_thread(reader, text))
        beginning = Beginning(request.library, tuple(options), request.file, leading(text))
        started = time.monotonic()
        try:
            pch = await self._headers.find(beginning)
            words = options if pch is None else [f"--use-pch={pch}", _SILENT, *options]
            reply = await self._job(request, job, words)
            if "failed" in reply and pch is not None:
                reply, pch = await self._job(request, job, options), None
                if "failed" not in reply:
                    self._headers.forget(beginning)
        finally:
            read, absent, unknown = await asyncio.shield(reading)
        if "failed" in reply:
            raise DoesNotCompile(str(reply["failed"]))
        if pch is None and not unknown:
            took = time.monotonic() - started
            self._headers.want(beginning, took, maker.roots, maker.folders, reader)
        command = " ".join(["nvrtc", *options])
        way = "nvrtc" if pch is None else "nvrtc, behind a precompiled header"
        return Made(
            made, reply["names"], reply["log"], [command], read, absent, unknown=unknown, way=way
        )

    async def _job(
        self, request: KernelRequest, job: dict[str, Any], options: list[str]
    ) -> dict[str, Any]:
        """A worker's reply. Raises DoesNotCompile, NotHere."""
        try:
            return await self._workers.compile(
                request.library, {**job, "options": options}, self._timeout
            )
        except Crashed as error:
            raise DoesNotCompile(str(error)) from error
        except WorkerFailed as error:
            raise NotHere(str(error), False) from error
        except asyncio.TimeoutError:
            raise DoesNotCompile(f"NVRTC took longer than {self._timeout:g} s") from None

    def _reads(
        self, request: KernelRequest, maker: Maker, text: str
    ) -> tuple[list[str], list[str], str]:
        """What NVRTC may read; paths that must stay missing; and why that is not known."""
        forced = [
            option.removeprefix(start)
            for option in request.options for start in _FORCED if option.startswith(start)
        ]  # fmt: skip
        try:
            found = self._includes.reads(text, maker.folders, maker.roots, forced)
        except (ByMacro, OSError) as reason:
            return [], [], str(reason)
        return sorted(found.files), sorted(found.absent), ""

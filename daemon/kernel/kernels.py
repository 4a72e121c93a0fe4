"""From a text without torch's headers to its answer: find it, or compile, keep and answer.

Stock torch knows no such texts, so there is no plan to ask it for; the rest is as for extensions: a
key, the store, one flight for equal requests, a permit for each compile, and a closure of what was
read. What is left to the client is compiled in its process, by the same compiler.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from warmcc import digest
from warmcc.config import Config
from warmcc.daemon.build.flight import Answer, Flight, Phase
from warmcc.daemon.closure.closure import ChangedDuringBuild, Closure, Closures
from warmcc.daemon.closure.marker import Marker
from warmcc.daemon.kernel.compilers import Compilers
from warmcc.daemon.kernel.makers import DoesNotCompile, Made, Maker, NotHere, failed
from warmcc.daemon.plan.keys import unpublished_key
from warmcc.daemon.store import Result, Store, staging_tree
from warmcc.daemon.system.counters import Counters
from warmcc.daemon.system.permits import Permits, Share
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain import MissingCompiler, Toolchains
from warmcc.protocol import Built, Declined
from warmcc.request import KernelRequest

log = logging.getLogger(__name__)

_GENERATION = 1
# What a result does not depend on; the compiler's identity stands for the rest.
_NOT_KEYED = ("environment", "interpreter", "library", "name")
_UNSAFE = re.compile(r"[^\w.-]+")
_SYSTEM_ROOTS = ("/usr", "/lib", "/lib64")


@dataclass(frozen=True)
class AdmittedKernel:
    """A text that may be compiled, and its hit, if there is one."""

    request: KernelRequest
    maker: Maker
    key: str
    hit: Built | None

    def inputs(self) -> dict[str, str]:
        """The parts of its key, for people."""
        request = self.request
        return {
            "source": digest.of_value(request.source), "compiler": request.compiler,
            "options": " ".join(request.options), "architecture": request.arch,
        }  # fmt: skip


class Kernels:
    """One per daemon. ``marks`` are variables that each process gets."""

    def __init__(
        self, config: Config, store: Store, closures: Closures, toolchains: Toolchains,
        runner: Runner, permits: Permits, counters: Counters, marks: dict[str, str],
    ) -> None:  # fmt: skip
        self._store = store
        self._closures = closures
        self._compilers = Compilers(config, toolchains, runner, closures, marks)
        self._permits = permits
        self._counters = counters
        # No limits are known there for what a text may read and a kernel may do.
        self._refuses = "a sandboxed daemon compiles no kernels" if config.sandbox else ""
        if config.shared:
            self._refuses = "a shared machine's daemon compiles no kernels"

    async def look_up(self, request: KernelRequest) -> AdmittedKernel:
        """Find the compiler and the hit of a request. Raises NotHere."""
        if self._refuses:
            raise NotHere(self._refuses, True)
        started = time.monotonic()
        try:
            maker = await self._compilers.maker(request)
        except MissingCompiler as reason:
            raise NotHere(str(reason), True) from reason
        fields = {
            name: value for name, value in msgspec.to_builtins(request).items()
            if name not in _NOT_KEYED
        }  # fmt: skip
        key = digest.of_value(["kernel", _GENERATION, fields, maker.identity])
        return AdmittedKernel(request, maker, key, await self._find(key, started))

    async def close(self) -> None:
        """End the processes that compile."""
        await self._compilers.close()

    async def _find(self, key: str, started: float) -> Built | None:
        found = await asyncio.to_thread(self._store.find, "kernel", key, self._closures)
        return None if found is None else _built(*found, "hit", started)

    async def build(self, found: AdmittedKernel, flight: Flight) -> Answer:
        """Compile what a flight is for. Never raises for what a request can cause."""
        started = time.monotonic()
        if (hit := await self._find(found.key, started)) is not None:
            return hit  # another flight landed meanwhile
        flight.begin(started)
        flight.phase = Phase.COMPILING
        flight.expect(1, 0)
        tree = await staging_tree(self._store)
        try:
            async with self._permits.hold(Share(flight.client, 1)):
                with flight.timeline.span("compile"):
                    marker = await asyncio.to_thread(Marker.take, tree)
                    made = await self._compilers.run(found.request, found.maker, tree)
            self._counters.compiles += 1
            with flight.timeline.span("publish"):
                kept = asyncio.to_thread(self._publish, found, made, marker)
                result, path = await asyncio.shield(kept)
        except DoesNotCompile as error:
            return failed(found.request, str(error))
        except NotHere as reason:
            return Declined(0, str(reason), reason.expected)
        except OSError as error:
            log.exception("kernel %s failed", found.request.name)
            where = error.filename or "in the store"
            return Declined(0, f"{error.strerror or error} ({where})", expected=False)
        finally:
            await asyncio.shield(asyncio.to_thread(self._store.discard, tree))
        answer = _built(result, path, "miss", started)
        answer.steps = flight.timeline.steps()
        flight.way = answer.way
        return answer

    def _publish(self, found: AdmittedKernel, made: Made, marker: Marker) -> tuple[Result, Path]:
        """Keep what was made. What cannot be kept goes to this caller alone. Raises OSError."""
        request = found.request
        kind = "so" if request.compiler in ("cc", "c++") else "cubin"
        name = f"{_UNSAFE.sub('_', request.name)[:100]}.{kind}"
        meta: dict[str, Any] = {
            "names": made.names, "log": made.log, "commands": made.commands, "way": made.way,
        }  # fmt: skip
        try:
            closure, key = self._closure(found, made, marker), found.key
        except ChangedDuringBuild as reason:
            log.info("%s is not kept: %s", request.name, reason)
            self._counters.unpublished += 1
            closure, key = Closure.union([]), unpublished_key(found.key)
            meta["unkept"] = True
        return self._store.publish("kernel", key, made.path, name, closure, meta)

    def _closure(self, found: AdmittedKernel, made: Made, marker: Marker) -> Closure:
        """Raises ChangedDuringBuild, OSError."""
        if made.unknown:
            raise ChangedDuringBuild("what was read", f"is not known: {made.unknown}")
        maker = found.maker
        read = self._closures.record(
            made.read, maker.roots, maker.folders, marker, texts=[found.request.source],
            absent=made.absent,
        )  # fmt: skip
        if not made.libraries:
            return read
        roots = [*maker.roots, *_SYSTEM_ROOTS]
        linked = self._closures.record(made.libraries, roots, [], marker, absent=made.searched)
        return Closure.union([read, linked])


def _built(result: Result, path: Path, outcome: Literal["hit", "miss"], started: float) -> Built:
    meta = result.meta
    return Built(
        0, str(path), outcome, time.monotonic() - started, meta["commands"], way=meta["way"],
        files=result.closure.files, output=meta["log"], names=meta["names"],
        kept=not meta.get("unkept"),
    )  # fmt: skip

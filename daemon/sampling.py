"""Check samples of what was built behind a lean prelude: the idle daemon compiles one again as stock would, to
assembler, and the user's functions must be the same in both. Where they are not, the lean way is closed, visibly.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from warmcc.daemon import assembly, ninja
from warmcc.daemon.counters import Counters
from warmcc.daemon.process import Runner
from warmcc.daemon.scheduler import Permits
from warmcc.daemon.store import Store
from warmcc.daemon.work import Work

log = logging.getLogger(__name__)

_SECONDS = 300.0


@dataclass(frozen=True)
class Sample:
    """One unit: its text behind the lean prelude, stock's text, the user's in both, and how both are compiled."""

    name: str
    compiler: list[str]
    flags: str
    environment: dict[str, str]
    prelude: Path
    lean: str
    stock: str
    source: str


class Sampler:
    """Keeps the latest sample and checks it when nothing has been built for ``after`` seconds (0: never)."""

    def __init__(self, store: Store, runner: Runner, permits: Permits, counters: Counters, *, after: float) -> None:
        self._store = store
        self._runner = runner
        self._permits = permits
        self._counters = counters
        self._after = after
        self._sample: Sample | None = None
        self._offered = 0.0
        self.differed: list[str] = []

    def offer(self, work: Work, environment: dict[str, str]) -> None:
        """Take what was just built as the next sample, if it went the lean way."""
        self._offered = time.monotonic()
        unit = work.way.units[0]
        stock = work.ways.ways[-1].units[0].text
        if work.way.name != "lean" or unit.pch is None or unit.text is None or stock is None:
            return
        flags = f"{work.plan.cflags} {work.plan.post_cflags}".strip()
        self._sample = Sample(
            work.request.module_name,
            work.toolchain.argv,
            flags,
            environment,
            unit.pch,
            unit.text,
            stock,
            "\n".join(work.request.cpp_sources),
        )

    async def run(self) -> None:
        """Check one sample after the other, for ever."""
        while self._after > 0:
            await asyncio.sleep(min(self._after, 10.0))
            if self._sample is None or time.monotonic() - self._offered < self._after:
                continue
            await self._permits.quiet()
            sample, self._sample = self._sample, None
            if sample is not None:
                await self._check(sample)

    async def _check(self, sample: Sample) -> None:
        folder = await asyncio.to_thread(self._store.staging)
        try:
            lean = await self._assemble(sample, folder, sample.lean, sample.prelude)
            stock = await self._assemble(sample, folder, sample.stock, None)
            differing = assembly.differing(lean, stock, sample.source)
        except (OSError, RuntimeError) as error:
            self._counters.samples["not compared"] += 1
            log.info("a sample of %s could not be compared: %s", sample.name, error)
            return
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, True)
        self._counters.samples["different" if differing else "same"] += 1
        if differing:
            self.differed = differing
            log.error("%s differs behind the lean prelude, which is closed: %s", sample.name, ", ".join(differing))

    async def _assemble(self, sample: Sample, folder: Path, text: str, prelude: Path | None) -> str:
        """The unit as assembler text. Raises OSError, RuntimeError."""
        (folder / "main.cpp").write_text(text, encoding="utf-8", newline="")
        include = f"-include {ninja.shell_words([str(prelude)])}" if prelude is not None else ""
        compiler = ninja.shell_words(["nice", "-n", "19", *sample.compiler])
        command = f"{compiler} {include} {sample.flags} -S main.cpp -o main.s".replace("$$", "$").replace("$ ", " ")
        done = await self._runner.run(
            ["/bin/sh", "-c", command], cwd=folder, environment={**sample.environment, "TMPDIR": str(folder)},
            timeout=_SECONDS,
        )  # fmt: skip
        if done.code != 0:
            raise RuntimeError(done.output[-1000:])
        return (folder / "main.s").read_text(errors="replace")

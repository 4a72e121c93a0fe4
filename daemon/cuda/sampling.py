"""Check samples of what was built with warm state: the idle daemon has nvcc itself build one again. The PTX must be the
same byte for byte, up to the module's own name in it, and the object must define the same symbols. Where they are not,
the profile loses its warm state, visibly.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from warmcc.daemon.counters import Counters
from warmcc.daemon.cuda import nvcc
from warmcc.daemon.cuda.profiles import CudaProfiles, Profile
from warmcc.daemon.process import Runner
from warmcc.daemon.scheduler import Permits
from warmcc.daemon.store import Store

log = logging.getLogger(__name__)

_SECONDS = 600.0
_MODULE = re.compile(r"_[0-9a-f]{8}_\d+_cuda_cu_[0-9a-f]{8}")


@dataclass(frozen=True)
class Made:
    """What is compared: PTX by the name of its file, and the symbols that an object defines for others."""

    ptx: dict[str, str]
    symbols: frozenset[str]


@dataclass(frozen=True)
class Sample:
    """One unit: its text, the words with which nvcc compiles it, and what was made of it."""

    name: str
    text: str
    words: list[str]
    profile: Profile
    made: Made


def differing(warm: Made, exact: Made) -> list[str]:
    """What is not the same: names of PTX files and of symbols.

    >>> differing(Made({"a.ptx": "x"}, frozenset("f")), Made({"a.ptx": "y"}, frozenset("fg")))
    ['a.ptx', 'g']
    """
    names = sorted(warm.ptx.keys() | exact.ptx.keys())
    return [name for name in names if warm.ptx.get(name) != exact.ptx.get(name)] + sorted(warm.symbols ^ exact.symbols)


class CudaSampler:
    """Keeps the latest sample and checks it when nothing has been built for ``after`` seconds (0: never)."""

    def __init__(
        self, store: Store, runner: Runner, permits: Permits, counters: Counters, profiles: CudaProfiles, *,
        after: float,
    ) -> None:  # fmt: skip
        self._store = store
        self._runner = runner
        self._permits = permits
        self._counters = counters
        self._profiles = profiles
        self._after = after
        self._sample: Sample | None = None
        self._offered = 0.0
        self.differed: list[str] = []

    async def offer(self, name: str, text: str, words: list[str], profile: Profile, folder: Path, made: Path) -> None:
        """Take what was just built in a folder as the next sample. ``made`` is the object."""
        self._offered = time.monotonic()
        if self._after > 0:
            self._sample = Sample(name, text, words, profile, await self._read(folder, made, profile))

    async def _read(self, folder: Path, made: Path, profile: Profile) -> Made:
        ptx = {path.name: _MODULE.sub("", path.read_text(errors="replace")) for path in folder.glob("*.ptx")}
        words = ["nm", "-g", "--defined-only", "-P", str(made)]
        done = await self._runner.run(words, cwd=folder, environment=profile.environment, timeout=60.0)
        # Weak symbols are inline functions of headers: the object of a finished precompiled header may have fewer.
        rows = (line.split() for line in done.output.splitlines())
        strong = {_MODULE.sub("", row[0]) for row in rows if len(row) > 1 and row[1] in "TDBR"}
        return Made(ptx, frozenset(strong))

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
            exact = await self._exact(sample, folder)
            found = differing(sample.made, exact)
        except (OSError, RuntimeError) as error:
            self._counters.samples["CUDA: not compared"] += 1
            log.info("a sample of %s could not be compared: %s", sample.name, error)
            return
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, True)
        self._counters.samples["CUDA: different" if found else "CUDA: same"] += 1
        if found:
            self.differed = found
            self._profiles.distrust(sample.profile, f"what {sample.name} became differs from nvcc's: {found}")
            log.error("%s differs from what nvcc makes of it: %s", sample.name, ", ".join(found))

    async def _exact(self, sample: Sample, folder: Path) -> Made:
        """What nvcc makes of it. Raises OSError, RuntimeError."""
        (folder / nvcc.UNIT).write_text(sample.text, encoding="utf-8", newline="")
        words = ["nice", "-n", "19", *sample.words, "--keep", "-c", nvcc.UNIT, "-o", "exact.o"]
        environment = {**sample.profile.environment, "TMPDIR": str(folder)}
        done = await self._runner.run(words, cwd=folder, environment=environment, timeout=_SECONDS)
        if done.code != 0:
            raise RuntimeError(done.output[-1000:])
        return await self._read(folder, folder / "exact.o", sample.profile)

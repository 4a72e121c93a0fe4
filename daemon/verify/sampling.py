"""Check samples: the idle daemon builds one again as stock would, and compares.

Where they are not, whatever made it is trusted no longer (see ``store/trust.py``), visibly.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from warmcc.daemon.closure.marker import Marker
from warmcc.daemon.store import Store
from warmcc.daemon.store.trust import Trust
from warmcc.daemon.system.background import Background
from warmcc.daemon.system.counters import Counters

log = logging.getLogger(__name__)

_OFTEN_SECONDS = 10.0


@dataclass(frozen=True)
class Inputs:
    """The input files of a build, as they were.
    What is made of others later can be compared with nothing. ``touched`` is one that changed
    during the build."""

    files: dict[str, tuple[int, int]]
    touched: str | None = None

    @classmethod
    def of(cls, paths: list[str], marker: Marker) -> Inputs:
        """Of a build that began at ``marker``."""
        try:
            found = {path: os.stat(path) for path in paths if os.path.isabs(path)}
        except OSError as error:
            return cls({}, str(error.filename))
        touched = next(
            (path for path, state in found.items() if not marker.precedes(path, state)), None
        )
        return cls({path: _look(state) for path, state in found.items()}, touched)

    def changed(self) -> str | None:
        """The first that is not as it was."""
        return next(
            (path for path, state in self.files.items() if _state(path) != state), self.touched
        )


def _state(path: str) -> tuple[int, int] | None:
    try:
        return _look(os.stat(path))
    except OSError:
        return None


def _look(found: os.stat_result) -> tuple[int, int]:
    return found.st_mtime_ns, found.st_size


class Sample(Protocol):
    """A built result: its module's name, its maker and inputs, and its kind for the counters."""

    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def maker(self) -> str: ...
    @property
    def inputs(self) -> Inputs: ...

    async def differing(self, folder: Path) -> list[str]:
        """Make it as stock would in an empty folder; what is not the same.
        Raises OSError, RuntimeError."""


class Sampler:
    """Keeps a late sample of each kind; checks it after ``after`` idle seconds (0: never)."""

    def __init__(
        self, store: Store, background: Background, counters: Counters, trust: Trust, *,
        after: float,
    ) -> None:  # fmt: skip
        self._store = store
        self._background = background
        self._counters = counters
        self._trust = trust
        self._after = after
        self._samples: dict[str, Sample] = {}
        self._offered: dict[str, float] = {}
        self._built = 0.0

    def wants(self, kind: str) -> bool:
        """Whether to offer one of this kind. To look at all that it was made of takes as long as a
        link: where many builds follow each other, one every few seconds is enough."""
        often = min(_OFTEN_SECONDS, self._after / 2)
        known = kind in self._samples and time.monotonic() - self._offered[kind] < often
        return self._after > 0 and not known

    def built(self) -> None:
        """Something was built: the machine is not idle."""
        self._built = time.monotonic()

    def offer(self, sample: Sample) -> None:
        """Take what was just built as the next sample of its kind."""
        if self._after > 0:
            self._samples[sample.kind] = sample
            self._offered[sample.kind] = time.monotonic()

    async def run(self) -> None:
        """Check one sample after the other, until cancelled."""
        while self._after > 0:
            await asyncio.sleep(min(self._after, 10.0))
            if not self._samples or time.monotonic() - self._built < self._after:
                continue
            await self._background.quiet()
            _, sample = self._samples.popitem()
            await self._check(sample)

    async def _check(self, sample: Sample) -> None:
        folder = await asyncio.to_thread(self._store.staging)
        try:
            differing = await sample.differing(folder)
            if (changed := await asyncio.to_thread(sample.inputs.changed)) is not None:
                raise RuntimeError(f"{changed} has changed, which is one of its inputs")
        except (OSError, RuntimeError) as error:
            self._counters.samples[f"{sample.kind} not compared"] += 1
            log.info("a %s sample of %s could not be compared: %s", sample.kind, sample.name, error)
            return
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, True)
        self._counters.samples[f"{sample.kind} {'different' if differing else 'same'}"] += 1
        if differing:
            found = ", ".join(differing)
            log.error("%s of %s differs from stock's: %s", sample.kind, sample.name, found)
            await asyncio.to_thread(self._trust.withdraw, sample.maker, f"{found} of {sample.name}")

"""A first ``torch.compile`` in a new process, by ``python`` and by ``warmcc run --inductor``.

The headline is a function of three operations, from the command to its first result. *Cold*:
Inductor's caches are off and its folders are empty, and the code was never compiled before; warmcc
has its zygote and its precompiled header, as its daemon keeps both. *Warm*: the same code was
compiled by a process before, with Inductor's caches on. The imports alone, the compile behind the
imports, and that of a ResNet-50 stand in rows below. The clock is the machine's: it is read before
the command starts, and by the script.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Unsound, World, interleaved, seconds
from benchmarks.harness.results import Outcome, Pair, Target, pair
from warmcc.client.cli import measuring

TITLE = "first torch.compile of a new process"
REPEAT = 5
COLD_RATIO, WARM_RATIO, IMPORT_RATIO = 2.5, 1.5, 30.0
COMPILE_LESS, RESNET_LESS = 0.60, 0.30
START_SECONDS = 240.0
PROBE = str(Path(measuring.__file__).parent / "probe" / "compile_steps.py")


@dataclass(frozen=True)
class Sample:
    """Seconds from the command to the end of its imports and to its first result, and those of the
    first compile alone."""

    imported: float
    result: float
    compile: float

    def __str__(self) -> str:
        return f"{seconds(self.result)} (the compile {seconds(self.compile)})"


class Commands:
    """Both sides' commands, and their folders."""

    def __init__(self, world: World, folder: Path) -> None:
        self._world, self._folder = world, folder
        self._bin = os.path.dirname(sys.executable)
        self._number = str(random.randrange(2, 1 << 20))  # of the code that is compiled again

    def cold(self, side: str, case: str) -> Sample:
        """Code that was never compiled, in empty folders. Raises Unsound."""
        place = Path(tempfile.mkdtemp(dir=self._folder))
        try:
            return self._run(side, place, [case, str(random.randrange(2, 1 << 20))], caches=False)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def warm(self, side: str) -> Sample:
        """Code that a process before has compiled. Raises Unsound."""
        place = self._folder / f"warm-{side}"
        place.mkdir(exist_ok=True)
        return self._run(side, place, ["three_ops", self._number], caches=True)

    def _run(self, side: str, place: Path, words: list[str], *, caches: bool) -> Sample:
        environment = self._environment(caches=caches)
        command = [f"{self._bin}/python"]
        if side == "stock":  # its caches and precompiled headers
            environment["TMPDIR"] = str(place)
            environment.pop("TORCHINDUCTOR_CACHE_DIR")
        else:
            command = [f"{self._bin}/warmcc", "run", "--explain", "--inductor"]
        before = self._world.status()["requests"]
        started = time.clock_gettime(time.CLOCK_MONOTONIC)
        done = subprocess.run(
            [*command, PROBE, *words], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0 or "python runs it" in done.stderr:
            raise Unsound(done.stderr[-3000:])
        told = json.loads(done.stdout.splitlines()[-1])
        after = self._world.status()["requests"]
        asked = sum(after[kind] - before[kind] for kind in ("hits", "misses"))
        if not told["right"] or (not caches and bool(asked) != (side == "warmcc")):
            raise Unsound(f"{side}: right: {told['right']}, asked of the daemon: {asked}")
        return Sample(told["imported"] - started, told["done"] - started, told["first compile"])

    def _environment(self, *, caches: bool) -> dict[str, str]:
        off = {} if caches else {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
        cache = {"TORCHINDUCTOR_CACHE_DIR": str(self._folder / "inductor")}
        return {**self._world.environment, **cache, **off}

    def start(self) -> None:
        """Have the zygotes started. Raises Unsound."""
        deadline = time.monotonic() + START_SECONDS
        for caches in (False, True):
            while said := self._complaint(caches=caches):
                if time.monotonic() > deadline:
                    raise Unsound(f"no zygote has started: {said}")
                time.sleep(0.5)

    def _complaint(self, *, caches: bool) -> str:
        """Why python runs a program where a zygote should."""
        return subprocess.run(
            [f"{self._bin}/warmcc", "run", "--explain", "--inductor", "-c", "pass"],
            env=self._environment(caches=caches), capture_output=True, text=True, check=False,
        ).stderr  # fmt: skip

    def end(self) -> None:
        subprocess.run([f"{self._bin}/warmcc", "stop"], env=self._world.environment, check=False,
            stdout=subprocess.DEVNULL)  # fmt: skip


def measure(repeat: int) -> Outcome:
    sides = ("stock", "warmcc")
    with World() as world, tempfile.TemporaryDirectory(prefix="wcc-bench-") as folder:
        commands = Commands(world, Path(folder))
        try:
            commands.start()
            commands.cold("warmcc", "three_ops")  # makes the precompiled header
            world.wait_idle()
            for side in sides:
                commands.warm(side)
            tasks: dict[str, Callable[[], Sample]] = {}
            for side in sides:
                tasks[f"{side} cold"] = lambda side=side: commands.cold(side, "three_ops")
                tasks[f"{side} warm"] = lambda side=side: commands.warm(side)
            taken = interleaved(repeat, tasks)
            models = {side: lambda side=side: commands.cold(side, "resnet50") for side in sides}
            resnet = interleaved(max(1, repeat // 2), models)
        finally:
            commands.end()
    cold = _pair("", taken["stock cold"], taken["warmcc cold"], "result")
    warm = _pair("with warm caches", taken["stock warm"], taken["warmcc warm"], "result")
    imports = _pair("the imports", taken["stock cold"], taken["warmcc cold"], "imported")
    alone = _pair("the compile alone", taken["stock cold"], taken["warmcc cold"], "compile")
    model = _pair("ResNet-50, the compile alone", resnet["stock"], resnet["warmcc"], "compile")
    targets = [
        _times(cold, COLD_RATIO), _times(warm, WARM_RATIO), _times(imports, IMPORT_RATIO),
        _less(alone, COMPILE_LESS), _less(model, RESNET_LESS),
    ]  # fmt: skip
    return Outcome(cold, [warm, imports, alone, model], targets)


def _pair(label: str, stock: list[Sample], warmcc: list[Sample], what: str) -> Pair:
    return pair(label, *([getattr(one, what) for one in side] for side in (stock, warmcc)))


def _times(one: Pair, least: float) -> Target:
    text = f"{one.label or 'cold'}: {one.ratio:.3g} times faster, at least {least:g}"
    return Target(text, one.ratio >= least)


def _less(one: Pair, least: float) -> Target:
    less = 1 - 1 / one.ratio
    return Target(f"{one.label}: {less:.0%} less, at least {least:.0%}", less >= least)

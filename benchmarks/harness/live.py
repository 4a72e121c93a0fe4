"""What the live scenarios share: edits of a file that is watched, and stock doing the same job by
hand.

A sample is the time from the file's close to the end of the first call that gives the new result.
warmcc's process watches the file; stock's author starts a new process that calls ``load``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.harness.callers import new_number
from benchmarks.harness.measuring import Unsound, interleaved, seconds
from benchmarks.harness.results import Outcome, Target, pair
from benchmarks.harness.world import World

EDITS = 10  # of warmcc's for each of stock's

_WATCH = """
import json, sys, time
import warmcc
path, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
text = open(path).read()
taken = []
with warmcc.watch("live", path, ["number"]) as ext:
    for number in range(first + 1, first + count + 1):
        with open(path, "w") as file:
            file.write(text.replace(str(first), str(number)))
        saved = time.perf_counter()
        while ext.number() != number:
            if ext.error is not None or time.perf_counter() > saved + 300:
                raise SystemExit(f"{number} does not come: {ext.error}")
            time.sleep(0.0005)
        taken.append(time.perf_counter() - saved)
print(json.dumps(taken))
"""
_BY_HAND = """
import sys
from torch.utils.cpp_extension import load
ext = load("live", [sys.argv[1], "binding.cpp"], build_directory=sys.argv[2])
assert ext.number() == int(sys.argv[3])
"""
_BINDING = """#include <torch/extension.h>
int number();
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("number", &number); }
"""


class Edits:
    """One file and its edits. ``source`` has ``NUMBER`` in it, which ``number()`` returns."""

    def __init__(self, world: World, source: str, suffix: str) -> None:
        self._world = world
        self._source = source
        self._folder = world.folder / "live"
        self._build = world.build_folder("stock", "live")
        self._folder.mkdir()
        (self._folder / "binding.cpp").write_text(_BINDING)  # never edited: stock compiles it once
        self._path = self._folder / f"kernel{suffix}"

    def warmcc(self) -> list[float]:
        """Several edits in a process that watches."""
        first = 1000 * new_number()
        self._path.write_text(self._source.replace("NUMBER", str(first)))
        return list(json.loads(self._run(_WATCH, self._path, first, EDITS)))

    def stock(self) -> list[float]:
        """One edit, and a new process."""
        number = 1000 * new_number()
        path = self._path.with_stem("by_hand")
        path.write_text(self._source.replace("NUMBER", str(number)))
        saved = time.perf_counter()
        self._run(_BY_HAND, path, self._build, number)
        return [time.perf_counter() - saved]

    def _run(self, code: str, *words: Path | int) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, words)], env=self._world.environment,
            capture_output=True, text=True, cwd=self._folder, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise Unsound((done.stdout + done.stderr)[-3000:])
        return done.stdout


def measure(world: World, repeat: int, source: str, suffix: str, limit: float) -> Outcome:
    """Interleave stock's edits and warmcc's."""
    edits = Edits(world, source, suffix)
    edits.stock()  # a folder that stock has built in before, as an author has
    edits.warmcc()
    taken = interleaved(repeat, {"stock": edits.stock, "warmcc": edits.warmcc})
    ours, theirs = (
        [value for values in taken[side] for value in values] for side in ("warmcc", "stock")
    )
    found = pair("", theirs, ours)
    median = found.warmcc.median
    return Outcome(
        found,
        targets=[Target(f"{seconds(median)}, at most {seconds(limit)}", median <= limit)],
        facts={"edits": len(ours)},
    )

"""A kernel that was never seen before, without torch's C++ (``warmcc.kernel``): from its source to
what it wrote, in a new process that has torch imported; stock's ``load_inline`` does the same.

Without a GPU, until it is compiled. A hit in a new process, the same without a daemon, and the cost
of a launch beside other ways stand in rows of their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import Unsound, World, interleaved, new_number, seconds
from benchmarks.harness.results import Outcome, Pair, Target, pair

TITLE = "kernel: without torch's C++"
REPEAT = 3
SCRIPT = Path(__file__).parents[1] / "kernel_process.py"
ARCHITECTURE = "sm_90a"
FIRST_SECONDS, HIT_SECONDS = 0.4, 0.020


def ask(world: World, side: str, number: int, **variables: str) -> dict[str, Any]:
    """What a new process says. Raises Unsound."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), side, str(number), ARCHITECTURE], capture_output=True,
        env={**world.environment, **variables}, text=True, check=False, cwd=world.folder,
    )  # fmt: skip
    if done.returncode != 0:
        raise Unsound(done.stderr[-3000:])
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def sample(world: World, side: str, number: int, how: str, **variables: str) -> float:
    found = ask(world, side, number, **variables)
    if found["how"] != how or not found["right"]:
        raise Unsound(f"{side}: {found}, and {how or 'the right numbers'} was expected")
    return float(found["seconds"])


def launch_rows(world: World) -> list[Pair]:
    """The cost of a launch, on a machine with a GPU."""
    code = "import torch; print(torch.cuda.is_available())"
    if subprocess.run([sys.executable, "-c", code], capture_output=True).stdout != b"True\n":
        return []
    found = ask(world, "launch", new_number())
    ours = found.pop("warmcc")
    return [pair(f"one launch, beside {name}", [taken], [ours]) for name, taken in found.items()]


def measure(repeat: int) -> Outcome:
    known = new_number()
    with World(pch="0", prewarm="") as world:
        sample(world, "warmcc", known, "miss")  # the daemon loads NVRTC

        def stock() -> float:
            return sample(world, "stock", new_number(), "")

        taken = interleaved(
            repeat,
            {
                "stock": stock,
                "new": lambda: sample(world, "warmcc", new_number(), "miss"),
                "hit": lambda: sample(world, "warmcc", known, "hit"),
                "alone": lambda: sample(
                    world, "warmcc", new_number(), "local", WARMCC_DISABLE="1"
                ),
            },
        )  # fmt: skip
        rows = launch_rows(world)
    new, hit = median(taken["new"]), median(taken["hit"])
    targets = [
        Target(f"a new kernel takes {seconds(new)}, under {seconds(FIRST_SECONDS)}",
               new < FIRST_SECONDS),
        Target(f"a hit takes {seconds(hit)}, under {seconds(HIT_SECONDS)}", hit < HIT_SECONDS),
    ]  # fmt: skip
    others = [
        pair("a hit, beside the first call", taken["new"], taken["hit"]),
        pair("NVRTC in the process, beside the daemon's", taken["alone"], taken["new"]),
        *rows,
    ]
    return Outcome(pair("", taken["stock"], taken["new"]), others, targets)

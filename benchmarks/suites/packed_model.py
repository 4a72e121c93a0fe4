"""A compiled model on a machine without a compiler: its first result out of a bundle, beside stock
torch with its compiler and empty caches.

The model is recorded once by ``warmcc pack --record`` and unpacked. Each sample is a new process in
empty folders. The bundle's has no compiler in PATH, no daemon and ``WARMCC_OFFLINE=1``; it must
compile no graph, and Triton must make no machine code. On a GPU the model is compiled with
``max_autotune``; coordinate descent is left out, as torch before 2.12 repeats it in every process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import Unsound, World, interleaved
from benchmarks.harness.results import Outcome, pair

TITLE = "compiled model from a bundle"
REPEAT = 3
MODEL = str(Path(__file__).parents[1] / "sources" / "compiled_model.py")
WORK = ("graphs", "cubins")


def measure(repeat: int) -> Outcome:
    with World() as world, tempfile.TemporaryDirectory(prefix="wcc-bench-") as name:
        folder = Path(name)
        places = Places(world, folder)
        told = places.record()
        taken = interleaved(
            repeat, {"stock": lambda: places.run("stock"), "warmcc": lambda: places.run("warmcc")}
        )
        size = (folder / "model.tar.gz").stat().st_size
    return Outcome(pair("", taken["stock"], taken["warmcc"]), facts={"bundle bytes": size, **told})


class Places:
    """The folders of the machine that records, and of those that run."""

    def __init__(self, world: World, folder: Path) -> None:
        self._folder = folder
        self._recording = world.environment
        self._bundle = str(folder / "model.tar.gz")
        (folder / "runtime").mkdir(mode=0o700)

    def record(self) -> dict[str, Any]:
        """Pack the model, and unpack it; gives what was done to compile it. Raises Unsound."""
        words = ["pack", self._bundle, "--record", "--", sys.executable, "-m", "warmcc", MODEL]
        environment = {**self._recording, "WARMCC_INDUCTOR": "1"}
        told = self._command([sys.executable, "-m", "warmcc.client.cli", *words], environment)
        if not told["graphs"] or bool(told["cubins"]) != (told["device"] == "cuda"):
            raise Unsound(f"nothing was compiled: {told}")
        words = ["unpack", self._bundle, "--to", str(self._folder / "models")]
        subprocess.run(
            [sys.executable, "-m", "warmcc.client.cli", *words], env=self._bare(self._folder),
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        return {name: told[name] for name in ("device", *WORK)}

    def run(self, side: str) -> float:
        """Seconds from the command to the first result. Raises Unsound."""
        place = Path(tempfile.mkdtemp(dir=self._folder))
        started = time.clock_gettime(time.CLOCK_MONOTONIC)
        if side == "stock":
            environment = {**self._recording, "WARMCC_DISABLE": "1", **_empty(place)}
            told = self._command([sys.executable, MODEL], environment)
        else:
            told = self._command([sys.executable, "-m", "warmcc", MODEL], self._bare(place))
        if any(told[name] for name in WORK) == (side == "warmcc"):
            raise Unsound(f"{side}: this work was done: {told}")
        shutil.rmtree(place, ignore_errors=True)
        return float(told["done"]) - started

    def _command(self, words: list[str], environment: dict[str, str]) -> dict[str, Any]:
        done = subprocess.run(
            words, env=environment, cwd=self._folder, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise Unsound(f"{words}: code {done.returncode}: {done.stderr[-3000:]}")
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        if not told["right"]:
            raise Unsound(f"{words}: the result is wrong")
        return told

    def _bare(self, place: Path) -> dict[str, str]:
        """A machine with nothing but Python and the bundle."""
        kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        return {
            **kept, **_empty(place), "PATH": str(self._folder / "nothing"), "WARMCC_OFFLINE": "1",
            "WARMCC_AUTOSTART": "0", "WARMCC_RUNTIME_DIR": str(self._folder / "runtime"),
            "WARMCC_BUNDLES": str(self._folder / "models"), "WARMCC_INDUCTOR": "1",
        }  # fmt: skip


def _empty(place: Path) -> dict[str, str]:
    """Torch's and Triton's caches, and what is temporary."""
    return {
        "HOME": str(place), "TMPDIR": str(place), "TRITON_CACHE_DIR": str(place / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(place / "inductor"),
    }  # fmt: skip

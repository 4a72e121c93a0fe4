"""From a command to the first line of a user's script with torch imported: ``python`` and
``warmcc run``.

The clock is the machine's: it is read before the command starts, and by the script behind its
``import torch``. The whole command, to its end, stands in a row below. A run that python itself had
to do would not count, and ends the scenario.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Unsound, interleaved, plain_environment, seconds
from benchmarks.harness.results import Outcome, Target, pair

TITLE = "first line of a script with torch imported"
REPEAT = 15
FIRST_SECONDS = 0.100
FIRST_RATIO = 12.0
START_SECONDS = 120.0
SCRIPT = """import torch
import time
print(time.clock_gettime(time.CLOCK_MONOTONIC))
"""


@dataclass(frozen=True)
class Sample:
    """Seconds from the start of the command to the script's first line, and to its end."""

    first: float
    whole: float

    def __str__(self) -> str:
        return f"{seconds(self.first)} (whole command {seconds(self.whole)})"


class Commands:
    """Both commands, with a folder for the zygote."""

    def __init__(self, folder: str) -> None:
        self._script = Path(folder, "script.py")
        self._script.write_text(SCRIPT)
        self._bin = os.path.dirname(sys.executable)
        self._environment = {**plain_environment(), "WARMCC_RUNTIME_DIR": f"{folder}/runtime"}

    def run(self, side: str) -> Sample:
        """Raises Unsound."""
        words = [f"{self._bin}/python"] if side == "stock" else [f"{self._bin}/warmcc", "run"]
        words += ["--explain"] if side == "warmcc" else []
        started = time.clock_gettime(time.CLOCK_MONOTONIC)
        done = subprocess.run(
            [*words, str(self._script)], env=self._environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        ended = time.clock_gettime(time.CLOCK_MONOTONIC)
        if done.returncode != 0 or done.stderr:
            raise Unsound(done.stderr)
        return Sample(float(done.stdout) - started, ended - started)

    def start(self) -> None:
        """Have a zygote started. Raises Unsound."""
        deadline = time.monotonic() + START_SECONDS
        while (said := self.complaint()) and time.monotonic() < deadline:
            time.sleep(0.2)
        if said:
            raise Unsound(f"no zygote has started: {said}")

    def complaint(self) -> str:
        """What a run has to say."""
        try:
            self.run("warmcc")
        except Unsound as error:
            return str(error)
        return ""

    def end(self) -> None:
        subprocess.run([f"{self._bin}/warmcc", "stop"], env=self._environment, check=False,
            stdout=subprocess.DEVNULL)  # fmt: skip


def measure(repeat: int) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="wcc-bench-", dir="/tmp") as folder:
        os.mkdir(f"{folder}/runtime", 0o700)
        commands = Commands(folder)
        try:
            commands.start()
            measures = {side: lambda side=side: commands.run(side) for side in ("stock", "warmcc")}
            interleaved(1, measures)
            taken = interleaved(repeat, measures)
        finally:
            commands.end()
    stock, warmcc = taken["stock"], taken["warmcc"]
    headline = pair("", [one.first for one in stock], [one.first for one in warmcc])
    whole = pair("the whole command", [one.whole for one in stock], [one.whole for one in warmcc])
    took, ratio = headline.warmcc.median, headline.stock.median / headline.warmcc.median
    targets = [
        Target(f"{seconds(took)}, under {seconds(FIRST_SECONDS)}", took < FIRST_SECONDS),
        Target(f"{ratio:.3g} times faster, at least {FIRST_RATIO:g}", ratio >= FIRST_RATIO),
    ]
    return Outcome(headline, [whole], targets)

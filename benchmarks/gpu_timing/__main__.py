"""``python -m benchmarks.gpu_timing``: time kernels by CUDA events in fresh processes of python and
of ``warmcc run``, in turns, and say whether they differ.

Data goes to standard output, talk to standard error. Exit codes: 0 measured, 1 the measurement is
not sound, 2 no GPU or usage.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.gpu_timing import extension
from benchmarks.gpu_timing.paired import Comparison, compare
from benchmarks.harness import Unsound, plain_environment, say, seconds
from warmcc import runs
from warmcc.client.cli.display.output import table

TOP = Path(__file__).parents[2]
START_SECONDS = 120.0
PROCESS_SECONDS = 120.0
LEAST = 0.01  # smaller differences are named equal, however certain they are
_PLAIN = "warmcc: python runs it: "


class Sides:
    """Both commands, in a folder for the program and for the zygote."""

    def __init__(self, folder: str, built: str) -> None:
        self._script = shutil.copy(Path(__file__).with_name("kernels.py"), f"{folder}/timed.py")
        self._built = built
        self._folder = folder
        self.runtime = Path(folder, "runtime")
        self.runtime.mkdir(mode=0o700)
        known = plain_environment()
        path = [str(TOP), *filter(None, [known.get("PYTHONPATH")])]
        self._environment = {
            **known, "PYTHONPATH": ":".join(path), "WARMCC_RUNTIME_DIR": str(self.runtime),
        }  # fmt: skip

    def run(self, side: str) -> dict[str, Any]:
        """One process. Raises Unsound."""
        launcher = ["-m", "warmcc.client.run.launch", "--explain"] if side == "warmcc" else []
        try:
            done = subprocess.run(
                [sys.executable, *launcher, self._script, self._built], env=self._environment,
                cwd=self._folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                check=False, timeout=PROCESS_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Unsound(f"{side}: no answer in {PROCESS_SECONDS:.0f} s") from None
        if done.returncode != 0 or _PLAIN in done.stderr:
            raise Unsound(f"{side}: code {done.returncode}: {done.stderr[-3000:]}")
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        if found["found_torch"] != (side == "warmcc"):
            raise Unsound(f"{side}: torch was imported before: {found['found_torch']}")
        if not found["fresh"]:
            raise Unsound(f"{side}: CUDA was initialised when the program began")
        return found

    def start(self) -> None:
        """Have a zygote started. Raises Unsound."""
        deadline = time.monotonic() + START_SECONDS
        said = "it was not tried"
        while time.monotonic() < deadline:
            done = subprocess.run(
                [sys.executable, "-m", "warmcc.client.run.launch", "--explain", "-c", "0"],
                env=self._environment, cwd=self._folder, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, check=False, timeout=PROCESS_SECONDS,
            )  # fmt: skip
            said = done.stderr
            if done.returncode == 0 and not said:
                return
            time.sleep(0.3)
        raise Unsound(f"no zygote has started: {said}")

    def check_zygote(self) -> None:
        """No zygote has a GPU's device open. Raises Unsound."""
        for path in (self.runtime / runs.FOLDER).glob(f"*{runs.SOCKET}"):
            pid = runs.ask(str(path), runs.STATUS).split()[0]
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                target = os.readlink(entry)
                if "nvidia" in target:
                    raise Unsound(f"the zygote has {target} open")

    def end(self) -> None:
        for path in (self.runtime / runs.FOLDER).glob(f"*{runs.SOCKET}"):
            runs.ask(str(path), runs.END)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_timing", description=__doc__)
    parser.add_argument("--repeat", type=int, default=50, metavar="N", help="pairs of processes")
    parser.add_argument(
        "--limit", type=float, default=420.0, metavar="SECONDS",
        help="begin no more pairs after this time (default: 420)",
    )  # fmt: skip
    parser.add_argument("--json", metavar="FILE", help="write all samples, or to - (stdout)")
    arguments = parser.parse_args()
    if arguments.repeat < 1:
        parser.error("--repeat takes a number from 1 on")
    began = time.monotonic()
    machine = look()
    if machine is None:
        say("there is no GPU that torch can use: nothing is measured")
        return 2
    say(f"{machine['gpu']}, torch {machine['torch']}")
    try:
        taken = measure(arguments.repeat, began + arguments.limit, machine)
    except Unsound as error:
        say(f"not sound: {error}")
        return 1
    found = {
        name: compare(taken["python"][name], taken["warmcc"][name]) for name in taken["python"]
    }
    if arguments.json != "-":
        show(found)
    if arguments.json:
        text = json.dumps(
            {
                "machine": machine, "samples": taken,
                "comparisons": {name: asdict(one) for name, one in found.items()},
            },
            indent=1,
        )  # fmt: skip
        if arguments.json == "-":
            print(text)
        else:
            Path(arguments.json).write_text(text + "\n")
    return 0


def look() -> dict[str, Any] | None:
    """The GPU and the versions; None where torch finds no GPU. Raises what a wrong torch does."""
    program = (
        "import json, torch\n"
        "there = torch.cuda.is_available()\n"
        "print(json.dumps(there and {'gpu': torch.cuda.get_device_name(),"
        " 'torch': torch.__version__, 'cuda': torch.version.cuda,"
        " 'capability': '%d.%d' % torch.cuda.get_device_capability()}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        say(done.stderr[-2000:])
        return None
    found: dict[str, Any] | None = json.loads(done.stdout.splitlines()[-1]) or None
    if found is not None:
        found |= {"python": sys.version.split()[0], "cores": len(os.sched_getaffinity(0))}
    return found


def measure(
    repeat: int, deadline: float, machine: dict[str, Any]
) -> dict[str, dict[str, list[float]]]:
    """Seconds by side and kernel, in pairs. Raises Unsound."""
    taken: dict[str, dict[str, list[float]]] = {"python": {}, "warmcc": {}}
    with tempfile.TemporaryDirectory(prefix="wcc-gpu-", dir="/tmp") as folder:
        built = extension.build(folder, machine["capability"])
        sides = Sides(folder, built)
        try:
            sides.start()
            for side in taken:  # compiles what Triton compiles, and fills caches
                say(f"  {side}: {seconds(sides.run(side)['seconds'])}")
            for number in range(repeat):
                if time.monotonic() > deadline:
                    say(f"the time is over: {number} of {repeat} pairs")
                    break
                for side in taken if number % 2 == 0 else reversed(taken):
                    for name, value in sides.run(side)["times"].items():
                        taken[side].setdefault(name, []).append(value)
                say(f"  {number + 1}/{repeat}")
            sides.check_zygote()
        finally:
            sides.end()
    if not taken["python"]:
        raise Unsound("no pair was measured in the time")
    return taken


def verdict(one: Comparison) -> str:
    """What the interval says."""
    if one.low <= 1 <= one.high or abs((one.low + one.high) / 2 - 1) < LEAST:
        return "equal"
    return "slower" if one.low > 1 else "faster"


def show(found: dict[str, Comparison]) -> None:
    rows: list[tuple[str, ...]] = [
        ("KERNEL", "PYTHON", "WARMCC RUN", "RATIO", "95 % INTERVAL", "SIGN TEST", "WARMCC RUN IS")
    ]
    for name, one in found.items():
        rows.append((
            name, _micro(one.python), _micro(one.warmcc), f"{one.ratio:.4f}",
            f"{one.low:.4f} to {one.high:.4f}",
            f"p = {one.p:.3f} ({one.slower} of {one.pairs} slower)", verdict(one),
        ))  # fmt: skip
    table(rows, right=(1, 2, 3))


def _micro(value: float) -> str:
    return f"{value * 1e6:.2f} µs"


if __name__ == "__main__":
    sys.exit(main())

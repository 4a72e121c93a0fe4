"""``warmcc bench compile``: the steps of a first torch.compile, by python and by ``warmcc run``.

Each row is a new process. *cold*: Inductor's caches are off and its folders are empty, and the code
was never compiled on this machine; *warm*: a process before has compiled the same code, and all
caches are on. Both kinds run in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from warmcc.client.cli.display.output import as_json, table, talk
from warmcc.client.run.launch import python_of_this
from warmcc.errors import DaemonTimeout, RequestError

_PROBES = Path(__file__).parent / "probe"
_START_SECONDS = 180.0
_SIDES = ("python", "warmcc run")
_CASES = {"three_ops": "three operations", "linear": "20 linear layers", "resnet50": "ResNet-50"}
_STEPS = (
    "import torch", "import torch._dynamo", "modules at import", "first compile",
    "modules at first compile", "second compile", "until the first result",
)  # fmt: skip
_OFF = {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}  # each process has empty folders then


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--case", action="append", choices=list(_CASES), default=[],
        help="what is compiled; may be given several times (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--repeat", type=int, default=1, metavar="N", help="processes for each figure, which is "
        "their median (default: 1)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    if arguments.repeat < 1:
        raise RequestError("--repeat must be 1 or more")
    found: dict[str, dict[str, Any]] = {}
    for case in arguments.case or _CASES:
        found |= _case(case, arguments.repeat)
    parts = dict(zip(_SIDES, _parts(), strict=True))
    if arguments.json:
        as_json({"steps": found, "parts": parts})
        return 0
    rows: list[tuple[str, ...]] = [("STEP", *_SIDES, "")]
    for title, sides in found.items():
        rows += [("", "", "", ""), (title, "", "", "")]
        for step in _STEPS:
            stock, ours = (sides[side][step] for side in _SIDES)
            rows.append((f"  {step}", _shown(stock), _shown(ours), _change(step, stock, ours)))
    rows.append(("", "", "", ""))
    for name in parts[_SIDES[0]]:
        rows.append((name, *(_shown(parts[side][name]) for side in _SIDES), ""))
    table(rows, right=(1, 2, 3))
    return 0


def _case(case: str, repeat: int) -> dict[str, dict[str, Any]]:
    """The medians of a case's steps, cold and warm, by title and side."""
    taken: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for number in range(repeat):
        for side in _SIDES if number % 2 == 0 else _SIDES[::-1]:
            talk(f"{_CASES[case]}, {side}, {number + 1} of {repeat}")
            with tempfile.TemporaryDirectory(prefix="warmcc-bench-") as folder:
                for state, told in _runs(side, case, Path(folder)):
                    rows = taken.setdefault(f"{_CASES[case]}, {state}", {}).setdefault(side, [])
                    rows.append(told)
    return {
        title: {
            side: {step: statistics.median(row[step] for row in rows) for step in _STEPS}
            for side, rows in sides.items()
        }
        for title, sides in taken.items()
    }


def _runs(side: str, case: str, folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    words = [str(_PROBES / "compile_steps.py"), case, str(random.randrange(2, 1 << 20))]
    # Python's caches and precompiled headers; a zygote has the folders that it was started with
    folders = {"TMPDIR": str(folder)} if side == "python" else {}
    yield "cold", _measured(side, words, {**folders, **_OFF})
    words[-1] = str(random.randrange(2, 1 << 20))
    _measured(side, words, folders)
    yield "warm", _measured(side, words, folders)


def _measured(side: str, words: list[str], variables: dict[str, str]) -> dict[str, Any]:
    """What the probe told. Raises RequestError, DaemonTimeout."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        started = time.clock_gettime(time.CLOCK_MONOTONIC)
        told, said = _told(side, words, variables)
        if not said:
            break
        if time.monotonic() > deadline:
            raise DaemonTimeout(f"no zygote runs the program: {said}")
        time.sleep(0.5)
    if not told["right"]:
        raise RequestError("the compiled model gave another result than the model")
    told["until the first result"] = told["done"] - started
    return told


def _told(side: str, words: list[str], variables: dict[str, str]) -> tuple[dict[str, Any], str]:
    """What a script printed, and why python ran it where a zygote should have. While no zygote is
    there, the script is one that does nothing. Raises RequestError."""
    environment = {**os.environ, **variables}
    command = [python_of_this(), *words]
    if side != "python":
        launch = [sys.executable, "-m", "warmcc.client.run.launch", "--explain", "--inductor"]
        asked = subprocess.run(
            [*launch, "-c", "pass"], env=environment, capture_output=True, text=True
        )
        if asked.stderr:
            return {}, asked.stderr.strip()
        command = [*launch, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise RequestError(f"{words[1:2] or words}: {done.stderr[-2000:]}")
    if side != "python" and "warmcc: python runs it" in done.stderr:
        return {}, done.stderr.strip()
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told, ""


def _parts() -> Iterator[dict[str, Any]]:
    for side in _SIDES:
        talk(f"single parts, {side}")
        told: dict[str, Any] = {}
        deadline = time.monotonic() + _START_SECONDS
        while not told and time.monotonic() < deadline:
            told, said = _told(side, [str(_PROBES / "parts.py")], {})
            if said:
                time.sleep(0.5)
        yield told


def _shown(value: Any) -> str:
    """Seconds, a count, or why there is neither.

    >>> _shown(1.234), _shown(0.0123), _shown(12), _shown("there is no GPU")
    ('1.23 s', '0.01 s', '12', '- (there is no GPU)')
    """
    if isinstance(value, float):
        return f"{value:.2f} s"
    return f"{value}" if isinstance(value, int) else f"- ({value})"


def _change(step: str, stock: Any, ours: Any) -> str:
    """How much less time a step takes.

    >>> _change("first compile", 4.0, 1.0), _change("modules at import", 10, 20)
    ('-75 %', '')
    """
    if "modules" in step or not stock:
        return ""
    return f"{100 * (ours / stock - 1):+.0f} %"

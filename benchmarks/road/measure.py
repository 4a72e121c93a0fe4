"""The calls of a case, one after another, by one side: what each took and what came of it."""

from __future__ import annotations

import hashlib
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import Unsound, kill_family, say, seconds
from benchmarks.road.cases import EDIT, ERROR, FIRST, NEW, SAME, SECOND, Case, Job, Version
from benchmarks.road.worlds import STOCK, RoadWorld, counted, way

CHILD = Path(__file__).with_name("child.py")
CALL_SECONDS = 7200.0  # 47 files on one core take half an hour
HITS = 3  # processes that find nothing changed
AGAIN = 10  # calls of each that come after its first


@dataclass(frozen=True)
class Sample:
    """What one side did at one moment of a case. ``answer`` is what has to be the same on both
    sides; ``cpu`` the processor seconds of the caller, the daemon and their children, warming up
    included."""

    case: str
    cores: int
    turn: int
    side: str
    moment: str
    seconds: list[float]
    cpu: float
    way: str
    answer: dict[str, Any]


@dataclass(frozen=True)
class Sequence:
    """All calls of ``case`` by one side (``stock``, or a state of the daemon)."""

    case: Case
    cores: int
    turn: int
    side: str
    # Of three digits or more; no other case and turn has it or the next two.
    number: int

    def samples(self, world: RoadWorld, before_each: Callable[[], None]) -> list[Sample]:
        """Make the calls. ``before_each`` brings the daemon into its state."""
        with tempfile.TemporaryDirectory(dir=world.folder) as folder:
            found: list[Sample] = []
            for moment, version, count in self._calls():
                before_each()
                found += self._at(
                    moment, self.case.make(Path(folder), version), count, world, Path(folder)
                )
            return found

    def _calls(self) -> list[tuple[str, Version, int]]:
        """What is called, in this order: moment, version, in how many processes."""
        name, n = "road_" + re.sub(r"\W", "_", self.case.name), self.number
        edited = Version(name, n, n + 2)
        calls = [
            (FIRST, Version(name, n, n), 1),
            (SECOND, Version(f"{name}_second", n + 1, n + 1), 1),
            (EDIT, edited, 1),
            (NEW, edited, HITS),
            (ERROR, Version(name, n, n + 2, self.case.mistake), 1),
        ]
        return [call for call in calls if call[0] in self.case.moments]

    def _at(
        self, moment: str, job: Job, processes: int, world: RoadWorld, folder: Path
    ) -> list[Sample]:
        again = AGAIN if moment == NEW and SAME in self.case.moments else 0
        before = self._state(world)
        asked = [ask(world, self.side, [job] * (1 + again), folder) for _ in range(processes)]
        after = self._state(world)
        gone = way(before[0], after[0])
        firsts = [answers[0] for answers in asked]
        found = [self._sample(moment, firsts, after[1] - before[1] if moment != NEW else 0.0, gone)]
        if again:
            found.append(
                self._sample(SAME, [one for answers in asked for one in answers[1:]], 0.0, gone)
            )
        return found

    def _state(self, world: RoadWorld) -> tuple[dict[str, int], float]:
        return (
            ({}, 0.0) if self.side == STOCK else (counted(world.status()), world.processor_time())
        )

    def _sample(self, moment: str, answers: list[dict[str, Any]], cpu: float, gone: str) -> Sample:
        took = [one["seconds"] for one in answers]
        say(
            f"    {self.side}, {moment}: "
            f"{seconds(statistics.median(took))}{f' ({gone})' if gone else ''}"
        )
        answer = next((one for one in answers if not one["right"]), answers[0])
        mean = sum(one["cpu"] for one in answers) / len(answers)
        return Sample(
            self.case.name,
            self.cores,
            self.turn,
            self.side,
            moment,
            took,
            cpu + mean,
            gone,
            comparable(answer),
        )


def ask(world: RoadWorld, side: str, jobs: list[Job], folder: Path) -> list[dict[str, Any]]:
    """Have a new process make the calls; gives its answers. Raises Unsound."""
    environment = {**world.environment, "TORCH_EXTENSIONS_DIR": str(folder / "extensions")}
    calls = [
        {"function": job.function, "arguments": job.arguments, "check": job.check} for job in jobs
    ]
    message = json.dumps({"side": STOCK if side == STOCK else "warmcc", "calls": calls})
    with open(world.folder / "callers.log", "ab") as log:
        process = subprocess.Popen(
            [sys.executable, str(CHILD)], cwd=folder, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
        )  # fmt: skip
    with process:
        try:
            told, _ = process.communicate(message, timeout=CALL_SECONDS)
        except BaseException as error:
            kill_family(process.pid)
            if isinstance(error, subprocess.TimeoutExpired):
                raise Unsound(f"a call has not come back within {CALL_SECONDS:g} s") from None
            raise
    if process.returncode != 0:
        tail = world.log_tail("callers.log")
        raise Unsound(f"a measured process ended with status {process.returncode}:\n{tail}")
    found: list[dict[str, Any]] = json.loads(told)
    return found


def comparable(answer: dict[str, Any]) -> dict[str, Any]:
    """The part of an answer that has to be the same on both sides: the exported symbols, or the
    error.
    """
    error = answer["error"]
    if error is None:
        return {"right": answer["right"], "symbols": symbols(answer["file"])}
    return {
        "classes": error["classes"],
        "message": first_message(error["text"]),
        "text": error["text"][-2000:],
    }


# Functions of the C++ runtime. A compiler may link that statically (conda's and some images' do),
# and which of its parts come along depends on what else an object refers to, such as <iostream>.
_RUNTIMES = re.compile(
    r"_Z(?:GTt|T[hvc][\dn_v]*_)?N?[VK]*(?:S[tabsiod]|10__cxxabiv1|9__gnu_cxx)"
    r"|_Z[nd][wal]|_Z\d+_txnal|__|_ITM|_Unwind"
)


def symbols(file: str) -> str:
    """A digest of the functions that a library exports for itself, without templates, inline
    functions, and the runtime's.
    """
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", file], capture_output=True, text=True, check=True
    ).stdout
    exported = (line.split()[-1] for line in listed.splitlines() if " T " in line)
    names = sorted(name for name in exported if not _RUNTIMES.match(name))
    return f"{len(names)} {hashlib.sha256(' '.join(names).encode()).hexdigest()[:12]}"


def first_message(text: str) -> str:
    """What a compiler's first error says, without the place; of other errors the last line, without
    a path in front.
    """
    found = re.search(r"\berror\b\s*:\s*(.+)", text)
    return (
        found[1].strip() if found else re.sub(r"^\S*/\S*: ", "", text.strip().rsplit("\n", 1)[-1])
    )

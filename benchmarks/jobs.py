"""``python -m benchmarks.jobs``: 2,000 short programs through ``warmcc.Runner``, of which every
other one misbehaves: it is killed, crashes, hangs, eats memory, leaves processes or floods its
output.

Each result is checked; afterwards no process, zombie, open file, thread or memory may be left in
the caller or the zygote. Data goes to standard output, talk to standard error. Exit codes: 0 all
well, 1 something was wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.harness import say
from benchmarks.harness.job_sides import Sides, sides
from warmcc import Finished
from warmcc.client.run.descendants import MARK

MIB = 1 << 20
GROWTH = 24 * MIB  # of memory, that counts as a leak


@dataclass(frozen=True)
class Kind:
    """Programs of one sort. ``code`` is Python with ``{n}``; ``exit`` its exit code, None for one
    that depends on the number; ``limits`` go to ``submit``."""

    name: str
    weight: int
    code: str
    exit: int | None = 0
    limits: dict[str, Any] = field(default_factory=dict)
    ended_by: str = ""  # the limit that must end it

    def complaint(self, number: int, done: Finished) -> str:
        """What is wrong with a result; '' for none."""
        code = number % 100 if self.exit is None else self.exit
        ended = [one for one in ("timed_out", "out_of_memory", "cut") if getattr(done, one)]
        if ended != ([self.ended_by] if self.ended_by else []):
            return f"ended by {ended}: {done.stderr[-200:]!r}"
        if done.code != code:
            return f"code {done.code}, not {code}: {done.stderr[-200:]!r}"
        if "print" in self.code and not done.cut and done.stdout != f"{number}\n".encode():
            return f"printed {done.stdout[:100]!r}"
        return ""


_NO_CORE = "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
KINDS = [
    Kind("right", 10, "import torch\nprint(int(torch.full((4, 4), {n}).sum()) // 16)"),
    Kind("exit code", 1, "import sys, torch\nsys.exit({n} % 100)", None),
    Kind("exception", 1, "import torch\ntorch.ones(2) @ torch.ones(3)", 1),
    Kind("killed", 1, "import os\nos.kill(os.getpid(), 9)", -9),
    Kind("crash", 1, f"{_NO_CORE}import ctypes\nctypes.string_at(0)", -11),
    Kind("sleeps", 1, "import time\ntime.sleep(60)", -9, {"timeout": 0.7}, "timed_out"),
    Kind("loops", 1, "while True: pass", -9, {"timeout": 0.7}, "timed_out"),
    Kind(
        "eats memory", 1,
        "import time\nx = []\nfor i in range(400):\n    x.append(b'x' * (10 << 20))\n"
        "    time.sleep(0.01)",
        -9, {"memory": 900 * MIB}, "out_of_memory",
    ),
    Kind(
        "leaves processes", 1,
        "import subprocess, torch\nsubprocess.Popen(['sleep', '300'], start_new_session=True)\n"
        "subprocess.Popen(['sleep', '300'])\nprint({n}, flush=True)",
    ),
    Kind(
        "forks", 1,
        "import os, time, torch\nfor i in range(8):\n    if os.fork() == 0:\n"
        "        os.setsid()\n        time.sleep(300)\nprint({n}, flush=True)",
    ),
    Kind(
        "floods", 1, "import os\nfor i in range(64): os.write(1, b'x' * 65536)",
        0, {}, "cut",
    ),
    Kind(
        "threads", 1,
        "import torch\ntorch.set_num_threads(2)\nx = torch.rand(300, 300)\n"
        "assert (x @ x).isfinite().all()\nprint({n})",
    ),
]  # fmt: skip


@dataclass
class Look:
    """What a process holds; ``zombies`` are among its ``children``."""

    files: int
    threads: int
    children: int
    zombies: int
    memory: int

    @staticmethod
    def at(pid: int) -> Look:
        process = psutil.Process(pid)
        children = process.children()
        zombies = 0
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                zombies += child.status() == psutil.STATUS_ZOMBIE
        held = process.memory_full_info().uss
        return Look(process.num_fds(), process.num_threads(), len(children), zombies, held)

    def more(self, before: Look) -> list[str]:
        """What has been added since, beyond what a memory may vary."""
        now, then = asdict(self), asdict(before)
        return [
            f"{now[name] - then[name]} more {name}"
            for name in now
            if now[name] - then[name] > (GROWTH if name == "memory" else 0)
        ]


@dataclass
class Outcome:
    jobs: int
    seconds: float = 0.0
    kinds: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    caller: list[Look] = field(default_factory=list)
    zygote: list[Look] = field(default_factory=list)


def marked(three: Sides) -> list[str]:
    """Processes that carry the mark of one of these jobs."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            variables = process.environ()
            if MARK in variables and variables.get("WARMCC_RUNTIME_DIR") == str(three.runtime):
                found.append(f"{process.pid} {' '.join(process.cmdline())}")
    return found


def put(three: Sides, count: int, seed: int = 1) -> Outcome:
    """Run so many programs. A first tenth comes before the first look."""
    chance = random.Random(seed)
    names = [kind for kind in KINDS for _ in range(kind.weight)]
    order = [names[number % len(names)] for number in range(count)]
    chance.shuffle(order)
    outcome = Outcome(count, kinds=dict(Counter(kind.name for kind in order)))
    warm_up = max(len(names), count // 10)
    _through(three, list(enumerate(names * (warm_up // len(names)))), Outcome(0))
    (zygote,) = three.zygotes()
    outcome.caller.append(Look.at(os.getpid()))
    outcome.zygote.append(Look.at(zygote))
    files = _files(three)
    began = time.monotonic()
    _through(three, list(enumerate(order)), outcome)
    outcome.seconds = time.monotonic() - began
    outcome.left += [f"process {one}" for one in marked(three)]
    outcome.left += [f"file {one}" for one in sorted(_files(three) - files)]
    if three.zygotes() != [zygote]:
        outcome.left.append(f"another zygote: {three.zygotes()}")
    else:
        outcome.zygote.append(Look.at(zygote))
        outcome.left += [f"zygote: {one}" for one in outcome.zygote[1].more(outcome.zygote[0])]
    outcome.caller.append(Look.at(os.getpid()))
    outcome.left += [f"caller: {one}" for one in outcome.caller[1].more(outcome.caller[0])]
    return outcome


def _through(three: Sides, order: list[tuple[int, Kind]], outcome: Outcome) -> None:
    """Submit, some ahead of the workers, and check in their order."""
    running: deque[tuple[int, Kind, Future[Finished]]] = deque()
    for number, kind in order:
        running.append((number, kind, three.submit(kind.code.format(n=number), **kind.limits)))
        if len(running) > 4 * three.workers:
            _check(*running.popleft(), outcome)
    while running:
        _check(*running.popleft(), outcome)


def _check(number: int, kind: Kind, job: Future[Finished], outcome: Outcome) -> None:
    done = job.result()
    reason = f"python ran it: {done.why_plain}" if done.why_plain else kind.complaint(number, done)
    if reason:
        outcome.wrong.append(f"{kind.name} {number}: {reason}")
        say(f"  {outcome.wrong[-1]}")
    if number % 100 == 99:
        say(f"  {number + 1} programs")


def _files(three: Sides) -> set[str]:
    def of(folder: str) -> Iterator[str]:
        for path in Path(folder).rglob("*"):
            yield str(path)

    return set(of(three.folder))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.jobs", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2000, metavar="N", help="default: 2000")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    parser.add_argument("--json", action="store_true", help="print all as JSON")
    arguments = parser.parse_args()
    if arguments.jobs < 1 or arguments.workers < 1:
        parser.error("--jobs and --workers take a number from 1 on")
    with sides(arguments.workers) as three:
        outcome = put(three, arguments.jobs)
    if arguments.json:
        print(json.dumps(asdict(outcome), indent=1))
    else:
        rate = outcome.jobs / outcome.seconds
        print(f"{outcome.jobs} programs in {outcome.seconds:.0f} s, {rate:.1f} a second")
        print(", ".join(f"{count} {name}" for name, count in outcome.kinds.items()))
        for one in (*outcome.wrong, *outcome.left):
            print(one)
        print("all results right, nothing left" if not outcome.wrong + outcome.left else "FAILED")
    return 1 if outcome.wrong or outcome.left else 0


if __name__ == "__main__":
    sys.exit(main())

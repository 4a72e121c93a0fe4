"""A load of correct, wrong and hostile submissions from several users; every promise is checked.

``python -m leaderboard.load_test --count 500`` starts a daemon in a folder of its own, with the
settings that docs/user/leaderboard.md recommends. It sends the submissions at once, and checks that

- each correct one passes, each wrong one does not, and each attack gets what it must get
- no attack printed that it read, wrote or reached something
- no process, no file and no mount is left, the store is unchanged, memory is back

It prints submissions per minute and what each attack got, and exits with 1 if a check failed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import psutil

from . import attacks
from .attacks import Attack
from .confine import UID
from .submission import Report, Submission

Sent = tuple[Submission, "Attack | str"]  # and what it is, or the status that is right for it
GROWN = 500 << 20  # bytes of memory that may stay in use: caches of the daemon and of allocators
COMPILERS = ("cc1plus", "as", "ld", "collect2", "c++", "g++", "ninja")
USERS = ("ada", "ben", "cora", "dan", "eve")
SETTINGS = """\
shared = true
sandbox = true
prewarm = {prewarm}
prewarm_idle = []
prewarm_cuda = false
sample_after = 0
build_timeout = {timeout}
step_memory = "4GiB"
step_file_size = "1GiB"
step_processes = {processes}
"""


@contextlib.contextmanager
def daemon(folder: Path, timeout: float, warm: bool) -> Iterator[None]:
    """A daemon in a folder, for this process; ``warm``: with torch's headers precompiled.
    Raises RuntimeError if it does not start."""
    os.environ |= {
        "WARMCC_RUNTIME_DIR": str(folder / "run"),
        "WARMCC_CACHE_DIR": str(folder / "cache"),
        "WARMCC_STATE_DIR": str(folder / "state"),
        "WARMCC_CONFIG": str(folder / "config.toml"),
        "WARMCC_AUTOSTART": "0",
    }

    def warmcc(command: str, seconds: float = timeout) -> None:
        words = {"timeout": seconds, "prewarm": '[""]' if warm else "[]", "processes": 300}
        (folder / "config.toml").write_text(SETTINGS.format(**words))
        done = subprocess.run(
            [sys.executable, "-m", "warmcc.client.cli", command], capture_output=True, text=True
        )
        if done.returncode != 0:
            raise RuntimeError(f"warmcc {command}: {done.stdout}{done.stderr}")

    try:
        if warm:  # without the short time limit, which precompiled headers have as well
            warmcc("warm", 1800)
            warmcc("stop")
        warmcc("start")
        yield
    finally:
        with contextlib.suppress(RuntimeError):
            warmcc("stop")


def load(count: int, hostile: float, torch: float, places: dict[str, str], seed: int) -> list[Sent]:
    """Submissions in random order, each with its Attack, or the status that is right for it."""
    chosen = random.Random(seed)
    number = round(count * hostile)
    bad = [attacks.ATTACKS[at % len(attacks.ATTACKS)] for at in range(number)]
    made: list[Sent] = []
    right: Attack | str
    for at in range(count):
        user, name = USERS[at % len(USERS)], f"n{at}"
        if at < number:
            text, right = attacks.said(bad[at].source, **places), bad[at]
        elif at % 10 == 0:
            text, right = f"// {at}\n{attacks.WRONG}", "wrong"
        elif at % 10 == 1:
            text, right = f"// {at}\n{attacks.BROKEN}", "compile error"
        else:  # different texts, so that each is compiled
            which = attacks.TORCH if at % 100 < 100 * torch else attacks.RIGHT
            text, right = f"{which}int number() {{ return {at}; }}\n", "passed"
        made.append((submission(user, name, text), right))
    chosen.shuffle(made)
    return made


def submission(user: str, name: str, text: str) -> Submission:
    """With the flags that its first line names, as from a file."""
    from .submission import read

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{name}.cpp")
        path.write_text(text)
        return read(path, user)


def faults(sent: list[Sent], reports: dict[tuple[str, str], Report]) -> Iterator[str]:
    """What is wrong with the reports."""
    for one, right in sent:
        report = reports.get((one.user, one.name))
        if report is None:
            yield f"{one.user}/{one.name} has no report"
            continue
        said = f"{report.status}: {report.log[:300]} {report.output[:200]}"
        if isinstance(right, Attack):
            if report.status not in right.gets:
                yield f"attack {right.what!r} got {said}"
            if any(leak in report.output for leak in attacks.LEAKS):
                yield f"attack {right.what!r} succeeded: {report.output[:300]}"
            if attacks.SECRET in report.line():
                yield f"attack {right.what!r} has read the secret"
        elif report.status != right:
            yield f"{one.user}/{one.name} must be {right!r}, and is {said}"


class Before:
    """The state of the machine that a load must leave as it was."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes = {one.pid for one in psutil.process_iter()}
        self.files = self._files()
        self.store = self._digests()

    def _files(self) -> set[str]:
        temporary = {
            entry.path
            for entry in os.scandir(tempfile.gettempdir())
            if entry.name == attacks.TARGET
        }
        return temporary | {str(path) for path in (self.folder / "work").rglob("*")}

    def _digests(self) -> dict[Path, str]:
        """Of what was built, by file."""
        store = self.folder / "cache" / "store"
        found = [path for kind in ("objects", "artifacts") for path in (store / kind).rglob("*")]
        return {
            path: hashlib.sha256(path.read_bytes()).hexdigest() for path in found if path.is_file()
        }

    def faults(self) -> Iterator[str]:
        """What is left behind, five seconds later."""
        deadline = time.monotonic() + 5
        while (left := self._left()) and time.monotonic() < deadline:
            time.sleep(0.1)
        yield from left
        if f"{self.folder}/" in Path("/proc/self/mounts").read_text():
            yield "mounts were left"
        if more := self._files() - self.files:
            yield f"files were left: {sorted(more)[:5]}"
        now = self._digests()
        if not self.store:
            yield f"no store was found in {self.folder}"
        if changed := [path for path, digest in self.store.items() if now.get(path) != digest]:
            yield f"the store was changed: {changed[:5]}"

    def _left(self) -> list[str]:
        """Processes of submissions, and of compilers."""
        ours = {one.pid for one in psutil.Process().children(recursive=True)}
        found = []
        for one in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                compiler = one.name() in COMPILERS and one.cwd().startswith(f"{self.folder}/")
                submission = one.pid in ours or one.uids().real >= UID
                if one.pid not in self.processes and (compiler or submission):
                    found.append(f"the process {one.pid} was left: {' '.join(one.cmdline())[:80]}")
        return found


def table(sent: list[Sent], reports: dict[tuple[str, str], Report]) -> str:
    """What each attack got."""
    got: dict[str, Counter[str]] = defaultdict(Counter)
    for one, right in sent:
        if isinstance(right, Attack) and (report := reports.get((one.user, one.name))):
            got[right.what][report.status] += 1
    order = [attack.what for attack in attacks.ATTACKS if attack.what in got]
    return "\n".join(
        f"{what:60} {', '.join(f'{status} ({n})' for status, n in got[what].items())}"
        for what in order
    )


def run(folder: Path, options: argparse.Namespace) -> list[str]:
    """Send the load, print figures, and return what is wrong."""
    from .compile import check_daemon
    from .confine import Limits
    from .evaluator import evaluate_all
    from .run import Runner

    check_daemon()
    foreign = folder / "submissions" / "other.cpp"
    foreign.parent.mkdir()
    foreign.write_text(f'#error "{attacks.SECRET}"\n')
    with socket.create_server(("127.0.0.1", 0)) as listener, \
            Runner(folder / "work", Limits(seconds=options.seconds)) as runner:  # fmt: skip
        places = {"foreign": str(foreign), "store": str(folder / "cache" / "store"),
                  "work": str(folder / "work"), "port": str(listener.getsockname()[1])}  # fmt: skip
        sent = load(options.count, options.hostile, options.torch, places, options.seed)
        reports: dict[tuple[str, str], Report] = {}

        def tell(report: Report) -> None:
            reports[report.user, report.name] = report
            if options.verbose:
                print(report.line(), flush=True)

        def evaluate(some: list[Submission]) -> None:
            evaluate_all(some, runner, tell, work=folder / "work", runners=options.runners)

        first = [Submission("first", f"n{n}", attacks.RIGHT + f"// {n}\n") for n in range(3)]
        evaluate(first)
        before = Before(folder)
        used = _memory(folder)
        began = time.monotonic()
        evaluate([one for one, _ in sent])
        seconds = time.monotonic() - began
        found = [*faults(sent, reports), *before.faults()]
        found += [f"{one.name} did not pass" for one in first
                  if reports[one.user, one.name].status != "passed"]  # fmt: skip
        grown = _memory(folder) - used
        if grown > GROWN:
            found.append(f"{grown >> 20} MiB of memory did not come back")
    if foreign.read_text() != f'#error "{attacks.SECRET}"\n':
        found.append("the file of another submission was changed")
    print(table(sent, reports))
    counts = Counter("attack" if isinstance(right, Attack) else right for _, right in sent)
    print(json.dumps({
        "submissions": len(sent), **counts, "seconds": round(seconds, 1),
        "per_minute": round(60 * len(sent) / seconds, 1), "memory_grown_mb": grown >> 20,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10, "faults": len(found),
    }))  # fmt: skip
    return found


def _memory(folder: Path) -> int:
    """Bytes that this process, its children and the daemon with its children hold."""
    total = psutil.Process().memory_info().rss
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if (
                str(folder) in one.environ().get("WARMCC_CACHE_DIR", "")
                or one.ppid() == os.getpid()
            ):
                total += one.memory_info().rss
    return total


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m leaderboard.load_test", description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--hostile", type=float, default=0.1, help="the part that attacks")
    parser.add_argument(
        "--torch", type=float, default=0.0, help="the part that uses torch's headers"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="time limit of a run")
    parser.add_argument("--build-timeout", type=float, default=30.0)
    parser.add_argument("--runners", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true", help="print each report")
    options = parser.parse_args(words)
    folder = Path(tempfile.mkdtemp(prefix="lb-", dir="/tmp"))
    folder.chmod(0o755)  # so that only the sandboxes hide what is in it
    try:
        with daemon(folder, options.build_timeout, options.torch > 0):
            found = run(folder, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for fault in found:
        print(f"FAULT {fault}", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())

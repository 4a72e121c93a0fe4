"""The example of a leaderboard: real submissions, hostile ones among them, against a real daemon
that is shared and sandboxed, and in real processes with the kernel's limits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import torch

import warmcc
from leaderboard import attacks, load_test
from leaderboard.compile import Unsafe, check_daemon, compile_submission
from leaderboard.confine import UID, Limits
from leaderboard.evaluator import evaluate_all
from leaderboard.run import Runner
from leaderboard.submission import Report, Submission
from tests.support.daemons import Daemon
from tests.support.pages import TOP
from warmcc import signing
from warmcc.client.connection import session
from warmcc.daemon.system.sandbox import Sandbox

NAMESPACES = ["unshare", "--pid", "--fork", "--mount", "--net"] + (
    ["--user"] if os.getuid() != 0 else []
)
pytestmark = [
    pytest.mark.skipif(Sandbox.missing() is not None, reason=Sandbox.missing() or ""),
    pytest.mark.skipif(
        subprocess.run([*NAMESPACES, "true"], capture_output=True).returncode != 0,
        reason="this machine allows no namespaces",
    ),
]
as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, who may be another user")
RIGHT = Submission("ada", "right", attacks.RIGHT)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Daemon], None]]:
    """Have this process ask a daemon."""

    def use(daemon: Daemon) -> None:
        for name, value in daemon.environment.items():
            monkeypatch.setenv(name, value)
        session.forget()

    session.forget()
    yield use
    session.forget()


@pytest.fixture
def judge(fresh_daemon: Callable[..., Daemon], client: Callable[[Daemon], None]) -> Daemon:
    daemon = fresh_daemon(
        shared=True, sandbox=True, build_timeout=60, step_memory=4 << 30, step_file_size=1 << 30,
        step_processes=300, pch=False,
    )  # fmt: skip
    client(daemon)
    return daemon


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    with Runner(tmp_path_factory.mktemp("work"), Limits(seconds=60)) as one:
        yield one


def evaluated(
    runner: Runner, given: list[Submission], work: Path, **more: int
) -> dict[str, Report]:
    found: list[Report] = []
    evaluate_all(given, runner, found.append, work=work, **more)
    assert len(found) == len(given)
    assert os.listdir(work) == [], "no bundle is left"
    return {report.name: report for report in found}


def left() -> list[int]:
    """Processes that submissions of this process's nurseries have left."""
    found = []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            found += [one.pid] if one.uids().real >= UID else []
    return found


# ---------------------------------------------------------------------- one submission


def test_right_wrong_and_broken(judge: Daemon, runner: Runner, tmp_path: Path) -> None:
    given = [
        RIGHT,
        Submission("ada", "wrong", attacks.WRONG),
        Submission("ben", "broken", attacks.BROKEN),
        Submission("ben", "flagged", attacks.RIGHT, flags=["-O3"], ldflags=["-lm"]),
    ]
    found = evaluated(runner, given, tmp_path)
    assert found["right"].status == "passed", found["right"]
    assert [one["passed"] for one in found["right"].tests] == [True] * 3
    assert found["right"].seconds is not None and found["right"].seconds_outside is not None
    assert 0 < found["right"].seconds <= found["right"].seconds_outside
    assert found["wrong"].status == "wrong" and "differs by" in found["wrong"].tests[0]["detail"]
    assert found["broken"].status == "compile error"
    assert found["broken"].diagnostics[0]["line"] == 5
    assert "was not declared in this scope" in found["broken"].log
    assert found["flagged"].status == "passed"


FEW = [
    "#include of another submission", "the flag -fplugin=/tmp/evil.so",
    "the flag -Wl,-T,/tmp/evil.ld", "many megabytes of errors", "fork bomb",
    "reading other files", "writing to the store, bundles and the system",
    "killing and tracing all processes", "becoming root, mounting, setting the clock",
    "connecting to the machine's network", "output without end", "daemons that outlive it",
    "all memory, in many processes", "exit(0) with a faked report",
    "faked answers without results", "an answer of 8 exabytes",
    "results that were kept from the calls before",
]  # fmt: skip


@pytest.mark.slow
def test_attacks(judge: Daemon, runner: Runner, tmp_path: Path) -> None:
    """Each gets what it must get, reaches nothing, and correct submissions beside them pass."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "foreign.cpp").write_text(f'#error "{attacks.SECRET}"\n')
    places = {"foreign": str(tmp_path / "other" / "foreign.cpp"), "port": "9",
              "store": str(judge.cache_dir / "store"), "work": str(tmp_path)}  # fmt: skip
    chosen = {f"n{at}": one for at, one in enumerate(attacks.ATTACKS) if one.what in FEW}
    assert len(chosen) == len(FEW)
    sent: list[load_test.Sent] = []
    for name, one in chosen.items():
        text = attacks.said(one.source, **places)
        sent.append((load_test.submission("eve", name, text), one))
        sent.append((Submission("ada", name, f"{attacks.RIGHT}// {name}\n"), "passed"))
    (tmp_path / "work").mkdir()
    reports: list[Report] = []
    evaluate_all(
        [one for one, _ in sent], runner, reports.append, work=tmp_path / "work", runners=2
    )
    assert list(load_test.faults(sent, {(one.user, one.name): one for one in reports})) == []
    assert (tmp_path / "other" / "foreign.cpp").read_text() == f'#error "{attacks.SECRET}"\n'
    assert left() == []


@pytest.mark.slow
def test_a_time_limit_ends_all_processes(judge: Daemon, tmp_path: Path) -> None:
    sleeps = Submission("eve", "sleeps", attacks.at_start("if (fork() == 0) setsid(); sleep(999);"))
    with Runner(tmp_path / "runs", Limits(seconds=3)) as runner:
        (tmp_path / "work").mkdir()
        found = evaluated(runner, [sleeps, RIGHT], tmp_path / "work")
        assert found["sleeps"].status == "time limit"
        assert found["right"].status == "passed", "the next one is not disturbed"
        assert os.listdir(tmp_path / "runs") == [] and left() == []


def test_the_process_that_forks_is_started_again(
    judge: Daemon, runner: Runner, tmp_path: Path
) -> None:
    assert compile_submission(RIGHT, tmp_path / "right.tar").status == "compiled"
    assert runner.run(RIGHT, tmp_path / "right.tar").status == "passed"
    for one in psutil.Process().children():
        if "leaderboard.nursery" in one.cmdline():
            one.kill()
    assert runner.run(RIGHT, tmp_path / "right.tar").status == "passed"


def test_a_submission_for_a_gpu_needs_one(runner: Runner, tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    cuda = Submission("ada", "kernel", attacks.RIGHT, language="cuda")
    report = runner.run(cuda, tmp_path / "kernel.tar")
    assert (report.status, report.log) == ("failed", "this machine has no GPU")


def test_another_bundle_is_not_run(judge: Daemon, runner: Runner, tmp_path: Path) -> None:
    other = dataclasses.replace(RIGHT, source=f"{RIGHT.source}// other\n")
    compile_submission(RIGHT, tmp_path / "right.tar")
    report = runner.run(other, tmp_path / "right.tar")
    assert report.status == "failed" and "is not the bundle of ada/right" in report.log
    report = runner.run(other, tmp_path / "missing.tar")
    assert report.status == "failed" and "No such file" in report.log


# ---------------------------------------------------------------------- the daemon


@pytest.mark.slow
def test_a_daemon_that_would_do_anything_is_not_asked(
    daemon: Daemon, client: Callable[[Daemon], None], fresh_daemon: Callable[..., Daemon]
) -> None:
    client(daemon)
    with pytest.raises(Unsafe, match="set `sandbox = true`"):
        check_daemon()
    client(fresh_daemon(sandbox=True))
    with pytest.raises(Unsafe, match="set `shared = true`"):
        check_daemon()
    daemon_of_both = fresh_daemon(sandbox=True, shared=True)
    client(daemon_of_both)
    check_daemon()
    daemon_of_both.stop()
    session.forget()
    with pytest.raises(warmcc.WarmccError):
        check_daemon()
    assert compile_submission(RIGHT, Path("/nowhere/right.tar")).status == "failed"


# ---------------------------------------------------------------------- the commands


def command(
    *words: str | Path, code: int = 0, front: list[str] | None = None, **variables: str
) -> list[dict[str, str]]:
    """What the example reports, in the folder of examples."""
    done = subprocess.run(
        [*(front or []), sys.executable, "-m", "leaderboard", *map(str, words)],
        cwd=TOP / "examples", env={**os.environ, **variables},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == code, f"{done.stdout}{done.stderr}"
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("ordinary", [False, pytest.param(True, marks=as_root)])
def test_two_machines(judge: Daemon, ordinary: bool, tmp_path: Path) -> None:
    """A signed bundle is run by a process that reaches no daemon; a changed one is not. Also as a
    user who is not root."""
    folder, bundles = tmp_path / "submissions", tmp_path / "bundles"
    for user in ("ada", "ben"):
        (folder / user).mkdir(parents=True)
        (folder / user / "one.cpp").write_text(f"// flags: -O1\n{attacks.RIGHT}// {user}\n")
    key = tmp_path / "key.pem"
    public = signing.make_key(str(key))
    printed = command("compile", folder, bundles, WARMCC_BUNDLE_KEY=str(key))
    assert [one["status"] for one in printed] == ["compiled"] * 2
    other = {"WARMCC_BUNDLE_TRUST": public, "WARMCC_RUNTIME_DIR": str(tmp_path / "none")}
    front = ["unshare", "--user", "--map-user=1000", "--map-group=1000"] if ordinary else []
    run = ["run", bundles, "--work", tmp_path / "work", "--seconds", "60"]
    printed = command(*run, front=front, **other)
    assert [one["status"] for one in printed] == ["passed"] * 2
    place = bundles / "ben.one.cpp.tar"
    data = bytearray(place.read_bytes())
    data[len(data) // 2] ^= 1
    place.write_bytes(data)
    unsigned = Submission("ada", "one", f"// flags: -O1\n{attacks.RIGHT}// ada\n", flags=["-O1"])
    assert compile_submission(unsigned, bundles / "ada.one.cpp.tar").status == "compiled"
    changed = {one["user"]: one for one in command(*run, code=1, front=front, **other)}
    assert {one["status"] for one in changed.values()} == {"failed"}
    assert "is not signed" in changed["ada"]["log"]
    assert "damaged" in changed["ben"]["log"], changed["ben"]


@pytest.mark.slow
@as_root
def test_a_killed_evaluator_leaves_no_process(judge: Daemon, tmp_path: Path) -> None:
    folder = tmp_path / "submissions" / "eve"
    folder.mkdir(parents=True)
    (folder / "sleeps.cpp").write_text(attacks.at_start("fork(); sleep(999);"))
    evaluator = subprocess.Popen(
        [sys.executable, "-m", "leaderboard", "evaluate", folder.parent, "--seconds", "999",
         "--work", tmp_path / "work"], cwd=TOP / "examples",
    )  # fmt: skip
    deadline = time.monotonic() + 120
    try:
        while len(left()) < 3:
            assert time.monotonic() < deadline and evaluator.poll() is None
            time.sleep(0.05)
    finally:
        evaluator.send_signal(signal.SIGKILL)
        evaluator.wait()
    while left():
        assert time.monotonic() < deadline + 20
        time.sleep(0.05)
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        assert str(tmp_path) not in mounts.read()


@pytest.mark.slow
@pytest.mark.parametrize(
    "count",
    [pytest.param(60, id="each attack once"), pytest.param(500, id="500, of which 50 attack")],
)
def test_the_load(count: int, client: Callable[[Daemon], None]) -> None:
    del client  # nothing of this process's connection
    words = ["--count", str(count), "--hostile", str(max(0.1, 50 / count)), "--seconds", "30"]
    done = subprocess.run(
        [sys.executable, "-m", "leaderboard.load_test", *words], cwd=TOP / "examples",
        capture_output=True, text=True, timeout=590,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"

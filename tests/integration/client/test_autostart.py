"""A daemon is started when none runs: one, however many ask for it, and nobody's child."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.daemons import Daemon
from warmcc.client.connection import session, spawn
from warmcc.client.connection.session import Session
from warmcc.errors import DaemonError, DaemonUnavailable
from warmcc.protocol import Stop
from warmcc.request import KEYED_ENVIRONMENT, PASSED_ENVIRONMENT


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """Where a daemon may be started; whatever was is ended with the test."""
    one = Daemon()
    for name, value in {**one.environment, "WARMCC_PREWARM": ""}.items():
        monkeypatch.setenv(name, value)
    session.forget()
    yield one
    session.forget()
    stop()
    one.discard()


def stop() -> None:
    with contextlib.suppress(DaemonUnavailable), Session(autostart=False) as one:
        pid = one.welcome.pid
        one.ask(Stop)
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(pid).wait(15)


def daemons(place: Daemon) -> list[str]:
    """Process numbers of the daemons that run in a place."""
    found = []
    for process in place.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "-m warmcc.daemon" in " ".join(process.cmdline()):
                found.append(str(process.pid))
    return found


def test_a_started_daemon_is_detached_and_nobodys_child(
    place: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_RANK", "7")
    with Session(autostart=True) as one:
        process = psutil.Process(one.welcome.pid)
    assert process.pid not in [child.pid for child in psutil.Process().children(recursive=True)]
    assert process.cwd() == "/"
    assert os.getsid(process.pid) != os.getsid(0) and os.getsid(process.pid) != process.pid
    assert process.terminal() is None
    environment = process.environ()
    assert "MY_RANK" not in environment and environment["WARMCC_RUNTIME_DIR"] == str(
        place.runtime_dir
    )
    for number, target in [
        (0, "/dev/null"),
        (1, f"{place.state_dir}/daemon.log"),
        (2, f"{place.state_dir}/daemon.log"),
    ]:
        assert os.readlink(f"/proc/{process.pid}/fd/{number}") == target
    assert (place.state_dir / "daemon.log").stat().st_mode & 0o777 == 0o600
    stop()
    with pytest.raises(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)


def test_a_started_daemon_has_what_requests_carry(
    place: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It warms up with these variables, and its folders are where the client looks, whatever
    decided that.
    """
    theirs = {*KEYED_ENVIRONMENT, *PASSED_ENVIRONMENT} - {"PATH", "HOME", "LD_LIBRARY_PATH"}
    for name in theirs:
        monkeypatch.setenv(name, f"/{name}")
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("RANK", "3")
    monkeypatch.delenv("WARMCC_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(place.folder))
    with Session(autostart=True) as one:
        environment = psutil.Process(one.welcome.pid).environ()
    own = {"XDG_CACHE_HOME"}
    assert {name: environment.get(name) for name in theirs - own} == {
        name: f"/{name}" for name in theirs - own
    }
    assert environment["WARMCC_CACHE_DIR"] == f"{place.folder}/warmcc"
    assert not {"LD_PRELOAD", "RANK"} & set(environment)


def test_many_who_ask_at_once_get_the_same_daemon(place: Daemon) -> None:
    code = (
        "from warmcc.client.connection.session import Session; "
        "print(Session(autostart=True).welcome.pid)"
    )
    askers = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    said = [asker.communicate(timeout=60)[0].strip() for asker in askers]
    assert [asker.returncode for asker in askers] == [0] * 6
    assert len(set(said)) == 1
    deadline = time.monotonic() + 10
    while (alive := daemons(place)) != said[:1]:  # those that came second may still be ending
        assert time.monotonic() < deadline, alive
        time.sleep(0.05)


def test_the_reason_why_a_daemon_does_not_start_is_told(
    place: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.state_dir.mkdir(mode=0o700)
    (place.state_dir / "daemon.log").write_text("an older daemon's last words\n")
    monkeypatch.setenv("WARMCC_JOBS", "many")
    started = time.monotonic()
    with pytest.raises(
        DaemonUnavailable, match=r"failed to start:\n(?s:.*)WARMCC_JOBS: jobs = 'many'"
    ) as caught:
        Session(autostart=True)
    assert "older daemon" not in str(caught.value)
    assert time.monotonic() - started < 10


def test_a_log_that_cannot_be_written_is_the_reason(
    place: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.state_dir.write_text("a file where the folder should be")
    with pytest.raises(DaemonError, match="state"):
        Session(autostart=True)


def test_the_log_keeps_its_size_while_the_daemon_runs(place: Daemon) -> None:
    """At its start, and whenever it writes a line; whoever else writes to it (a zygote, a crash)
    goes on in it.
    """
    log, old = place.state_dir / "daemon.log", place.state_dir / "daemon.log.1"
    place.state_dir.mkdir(mode=0o700)
    log.write_text("before the start\n" * 600_000)
    log.chmod(0o600)
    with Session(autostart=True) as one:
        daemon = psutil.Process(one.welcome.pid)
        assert old.read_text() == "before the start\n" * 600_000
        for turn in ("first", "second"):
            with open(log, "a") as another:
                another.write(f"{turn} turn\n" * 900_000)
                size = log.stat().st_size
                daemon.send_signal(signal.SIGHUP)
                wait_for(lambda size=size: log.stat().st_size < size)
                another.write("of somebody else\n")
            kept = old.read_text()
            assert f"{turn} turn\n" * 900_000 in kept and "settings read again" in kept
            wait_for(lambda: "of somebody else" in log.read_text())
            assert log.read_text().replace("of somebody else\n", "") == "", (
                "nothing is lost, and no hole is left"
            )
        assert "before the start" not in kept and "first turn" not in kept
    assert sorted(path.name for path in place.state_dir.iterdir()) == [
        "daemon.log",
        "daemon.log.1",
        "log.jsonl",
    ]
    assert {path.stat().st_mode & 0o777 for path in place.state_dir.iterdir()} == {0o600}


def test_another_ones_log_is_left_alone(place: Daemon) -> None:
    """Standard error in a file that is not daemon.log: whoever put it there looks after it."""
    place.log_file.write_text("theirs\n" * 2_000_000)
    place.start()
    place.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
    wait_for(lambda: "settings read again" in place.log_file.read_text()[-200:])
    assert place.log_file.read_text().startswith("theirs\n" * 2_000_000)
    assert not (place.state_dir / "daemon.log.1").exists()
    place.stop()


def wait_for(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


STOPPING = """
import fcntl, os, sys, time
lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(lock, fcntl.LOCK_EX)
os.write(lock, f"{os.getpid()}\\n".encode())
print("locked", flush=True)
time.sleep(1.5)
"""


def test_a_daemon_that_is_ending_is_waited_for(place: Daemon) -> None:
    """It holds the lock and answers no more: one that is started now would end at once."""
    place.runtime_dir.mkdir(mode=0o700)
    lock = str(place.runtime_dir / "daemon.lock")
    with subprocess.Popen(
        [sys.executable, "-c", STOPPING, lock, "-m", "warmcc.daemon"],
        stdout=subprocess.PIPE,
        text=True,
    ) as ending:
        assert ending.stdout is not None and ending.stdout.readline() == "locked\n"
        assert spawn.lock_is_held()
        with Session(autostart=True) as one:
            assert ending.poll() is not None
            assert psutil.pid_exists(one.welcome.pid)


def test_a_pid_in_the_lock_file_of_somebody_else_means_nothing(place: Daemon) -> None:
    place.runtime_dir.mkdir(mode=0o700)
    lock = place.runtime_dir / "daemon.lock"
    assert not spawn.lock_is_held()
    for text in ("", "no number", "1\n", f"{os.getpid()}\n"):
        lock.write_text(text)
        assert not spawn.lock_is_held()


def test_without_autostart_nothing_is_started(place: Daemon) -> None:
    with pytest.raises(DaemonUnavailable, match="warmcc start"):
        session.current(autostart=False)
    assert not Path(place.state_dir).exists()

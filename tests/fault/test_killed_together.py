"""kill -9 of the daemon and of its reaper at once: what they started ends by itself, and what does
not is ended by the next daemon."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import zmq

from tests.support import ROOT
from tests.support.calls import Connection, module_source, request
from tests.support.daemons import Daemon
from tests.support.fault.victims import met
from warmcc.daemon.system import remains
from warmcc.protocol import Built

Context = zmq.Context[zmq.Socket[bytes]]
PATIENCE_SECONDS = 10.0
# Three servers; for the fork ahead and for the unit that is compiled a process that waits, and the
# fork itself.
FAMILY = {"program": 7, "ninja": 1, "sleep": 2}


def until(condition: Callable[[], bool], told: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, told()
        time.sleep(0.02)


def named(family: list[psutil.Process]) -> Counter[str]:
    found: Counter[str] = Counter()
    for process in family:
        with contextlib.suppress(psutil.Error):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found[process.name()] += 1
    return found


def test_all_that_was_started_ends(tmp_path: Path) -> None:
    """Fork servers that serve, wait with a fork ahead of need and read their prelude; a fork at
    work; a build.
    """
    command = [sys.executable, "-m", "tests.support.fault.starting", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as starter:
        assert starter.stdout is not None and starter.stdout.readline() == b"ready\n"
        process = psutil.Process(starter.pid)
        until(
            lambda: named(process.children(recursive=True)) >= Counter(FAMILY),
            lambda: process.children(True),
        )
        family = process.children(recursive=True)
        (reaper,) = [
            one for one in family if any(word.endswith("reaper.py") for word in one.cmdline())
        ]
        process.suspend()  # or it would start another reaper
        reaper.kill()
        process.kill()
    try:
        until(lambda: not named(family), lambda: named(family))
    finally:
        for one in family:
            with contextlib.suppress(psutil.Error):
                one.kill()


def kill_both(daemon: Daemon) -> None:
    reapers = met(daemon, "reaper.py")
    psutil.Process(daemon.pid).suspend()  # or it would start another
    for pid in reapers:
        os.kill(pid, 9)
    daemon.kill()


@pytest.mark.slow
def test_a_compile_of_a_daemon_that_was_killed_ends(
    fresh_daemon: Callable[..., Daemon], context: Context, tmp_path: Path
) -> None:
    daemon = fresh_daemon(pch=False, ccache=False)
    os.mkfifo(tmp_path / "endless.h")
    connection = Connection(daemon, context)
    connection.ask(request(cpp_sources=[f'#include "{tmp_path}/endless.h"\n{module_source()}']))
    until(lambda: met(daemon, "cc1plus") != [], daemon.log)
    family = daemon.processes()
    kill_both(daemon)
    assert daemon.left_over(family) == []
    daemon.start()
    assert isinstance(Connection(daemon, context).build(request()), Built)


def test_what_is_left_is_ended_by_the_next_daemon_and_no_other_process(
    fresh_daemon: Callable[..., Daemon], context: Context
) -> None:
    daemon = fresh_daemon(pch=False, ccache=False)
    daemon.stop()
    hangs = [
        "python3",
        "-S",
        "-c",
        "import signal\nsignal.signal(15, signal.SIG_IGN)\nsignal.pause()",
    ]
    marked = subprocess.Popen(
        hangs, env={**os.environ, **remains.mark(daemon.cache_dir)}, start_new_session=True
    )
    others = [
        subprocess.Popen(["sleep", "1000"], env={**os.environ, **more})
        for more in ({}, {remains.VARIABLE: "1-1"}, {"LEFT": str(remains.mark(daemon.cache_dir))})
    ]
    try:
        daemon.start()
        assert marked.wait(PATIENCE_SECONDS) == -9
        assert [other.poll() for other in others] == [None, None, None]
        assert "1 processes of a daemon that was killed" in daemon.log()
        assert isinstance(Connection(daemon, context).build(request()), Built)
    finally:
        for process in (marked, *others):
            process.kill()
            process.wait()


@pytest.mark.skipif(os.getuid() != 0, reason="only root may start a process of another user")
def test_a_process_of_another_user_is_left_alone(tmp_path: Path) -> None:
    mark = remains.mark(tmp_path)
    with subprocess.Popen(["sleep", "1000"], env={**os.environ, **mark}, user=54321) as other:
        assert remains.end(tmp_path) == 0
        assert other.poll() is None
        other.kill()

"""Commands of a build: the session and the priority that they run with."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import logging.handlers
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from warmcc.daemon.system import reaper, runner
from warmcc.daemon.system.runner import Runner

NOBODY = 65534
# A session of three: a shell, a process of root's and one of another user.
SESSION = (
    "sleep 600 & setpriv --reuid 65534 --clear-groups sleep 600 & echo ready; exec setpriv "
    "--reuid 65534 {leader}"
)
needs_root = pytest.mark.skipif(
    os.getuid() != 0, reason="only root can start processes as two users"
)


def run(command: str, *, aside: bool) -> list[str]:
    """What a shell command prints, in lines."""
    with contextlib.closing(Runner()) as runner:
        argv = ["/bin/sh", "-c", command]
        done = asyncio.run(
            runner.run(argv, cwd=Path("/"), environment=dict(os.environ), timeout=60.0, aside=aside)
        )
    assert done.code == 0
    return done.output.splitlines()


@pytest.mark.parametrize(("aside", "more"), [(False, 0), (True, 10)])
def test_what_nobody_waits_for_gives_way(aside: bool, more: int) -> None:
    ours = os.nice(0)
    assert run("nice", aside=aside) == [str(min(19, ours + more))]


@pytest.mark.skipif(
    not os.path.exists("/proc/self/autogroup"), reason="this kernel does not group by session"
)
@pytest.mark.parametrize(("aside", "nice"), [(False, 0), (True, 10)])
def test_where_sessions_have_shares_the_session_gives_way(aside: bool, nice: int) -> None:
    (group,) = run("cat /proc/self/autogroup", aside=aside)
    assert group.endswith(f" nice {nice}")
    ours = (
        Path("/proc/self/autogroup").read_text().split()
    )  # empty where we are in no session's group
    assert group.split()[0] not in ours


def test_words_stay_words() -> None:
    assert run("printf '%s\\n' 'a b' \"$HOME\" '$x'", aside=True) == [
        "a b",
        os.environ["HOME"],
        "$x",
    ]


def in_a_child(work: Callable[[], object], uid: int) -> Any:
    """What ``work`` returns in a process of its own that runs as a user."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.setresuid(uid, uid, uid)
            os.write(write, json.dumps(work()).encode())
        except BaseException:
            traceback.print_exc()
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with open(read, "rb") as pipe:
        return json.loads(pipe.read() or b"null")


@needs_root
def test_what_may_not_be_signalled_keeps_nothing_else_alive() -> None:
    """A setuid program in a build's session: the others are killed all the same, and it is
    named.
    """
    command = ["/bin/sh", "-c", SESSION.format(leader="--clear-groups sleep 600")]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE) as session:
        assert session.stdout is not None and session.stdout.readline() == b"ready\n"
        try:
            while (
                len(owners := {pid: os.stat(f"/proc/{pid}").st_uid for pid in members(session.pid)})
                < 3
            ):
                pass
            while sorted(owners.values()) != [0, NOBODY, NOBODY]:
                owners = {pid: os.stat(f"/proc/{pid}").st_uid for pid in members(session.pid)}
            (foreign,) = [pid for pid, owner in owners.items() if owner == 0]
            assert in_a_child(lambda: sorted(reaper.kill_session(session.pid)), NOBODY) == [foreign]
            assert members(session.pid) == {foreign}
        finally:
            assert reaper.kill_session(session.pid) == set()


def members(sid: int) -> set[int]:
    return reaper.session_members(sid)


def test_too_many_open_files_hide_no_process() -> None:
    """/proc cannot be read then; whoever is killed is killed once it can."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as session:

        def without_files() -> list[int]:
            signal.signal(
                signal.SIGALRM, lambda *_: resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            )
            limits = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            return sorted(reaper.kill_session(session.pid))

        try:
            assert in_a_child(without_files, os.getuid()) == []
            assert session.wait(10) == -signal.SIGKILL
        finally:
            session.kill()


@needs_root
def test_a_leader_that_may_not_be_signalled_holds_up_nobody() -> None:
    """The daemon of an ordinary user runs a setuid program that does not end: the time limit ends
    the wait, and what stays is in the log."""
    place = Path(tempfile.mkdtemp(dir="/tmp"))  # the other user can look into it
    place.chmod(0o711)
    setuid, told = place / "setuid", logging.handlers.BufferingHandler(100)
    (place / "setuid.c").write_text(
        "#include <unistd.h>\nint main(void) { setresuid(0, 0, 0); return pause(); }\n"
    )
    subprocess.run(["cc", place / "setuid.c", "-o", setuid], check=True)
    setuid.chmod(0o4755)

    def outlasts() -> list[object]:
        logging.getLogger().handlers = [told]
        with contextlib.closing(Runner()) as runner:
            runner._start_reaper()  # while this Python can still be read
            os.setresuid(NOBODY, NOBODY, NOBODY)
            done = asyncio.run(
                runner.run([str(setuid)], cwd=Path("/"), environment={}, timeout=0.5)
            )
        return [done.timed_out, done.code, [one.getMessage() for one in told.buffer]]

    try:
        timed_out, code, lines = in_a_child(outlasts, os.getuid())
        assert (timed_out, code) == (True, -signal.SIGKILL)
        assert [line for line in lines if "could not be ended" in line]
    finally:
        for entry in Path("/proc").glob("[0-9]*/exe"):
            with contextlib.suppress(OSError):
                if entry.readlink() == setuid:
                    os.kill(int(entry.parent.name), signal.SIGKILL)
        shutil.rmtree(place)


def test_threads_are_there_before_their_work() -> None:
    """One that cannot be started when it is needed would leave its work to another, behind its
    caller's back.
    """
    with runner.started_threads() as threads:
        there = threading.active_count()
        futures = [threads.submit(threading.get_ident) for _ in range(200)]
        assert len({one.result() for one in futures}) >= 1
        assert threading.active_count() == there


def test_no_more_processes_leave_nothing_behind(tmp_path: Path) -> None:
    """What was started before a step failed is gone: no zombie, no open file."""

    def without_reaper() -> list[object]:
        before = len(os.listdir("/proc/self/fd"))
        runner = Runner()
        runner._start_reaper = refuse  # type: ignore[method-assign]
        with contextlib.suppress(OSError):
            asyncio.run(runner.run(["sleep", "600"], cwd=tmp_path, environment={}, timeout=60.0))
        return [before, len(os.listdir("/proc/self/fd")), children()]

    def refuse() -> None:
        raise OSError(errno.EAGAIN, "no process")

    def children() -> str:
        return Path(f"/proc/self/task/{os.getpid()}/children").read_text()

    before, after, left = in_a_child(without_reaper, os.getuid())
    assert (after, left) == (before, "")

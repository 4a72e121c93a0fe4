"""The client's session when its user changes his mind, with threads, forks, and at the end of a
process.
"""

from __future__ import annotations

import gc
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import ROOT, calls
from tests.support.scripted import declines, reports, serving, silent
from warmcc.client.connection import session
from warmcc.client.connection.session import Session
from warmcc.errors import DaemonUnavailable
from warmcc.protocol import Build, Cancel, Declined, Progress, Status

pytestmark = pytest.mark.usefixtures("no_session_of_before")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, ValueError])
def test_an_interruption_cancels(
    kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def script(message: Any) -> Iterator[Any]:
        if isinstance(message, Build) and message.request.name == "slow":
            yield Progress(message.id, "compiling", 0.0)
            yield Declined(message.id, "too late", True)
        elif isinstance(message, Build):
            yield Declined(message.id, "the second", True)

    def interrupt(*_: object) -> None:
        raise kind

    with serving(script, monkeypatch) as daemon, Session(autostart=False) as one:
        for way in ("on_progress", "meanwhile"):
            with pytest.raises(kind):
                one.build(calls.request(name="slow"), **{way: interrupt})  # type: ignore[arg-type]
            assert daemon.wait_for(Cancel).id == one._number
        answer = one.build(calls.request(name="next"))
        assert isinstance(answer, Declined) and answer.reason == "the second"


def test_ctrl_c_while_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "from tests import calls\nfrom warmcc.client.connection.session import Session\n"
        "one = Session(autostart=False)\n"
        "try:\n    one.build(calls.request())\nexcept KeyboardInterrupt:\n"
        "    print('interrupted', flush=True)\n"
        "input()\n"
    )
    with serving(silent, monkeypatch) as daemon:
        with subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            number = daemon.wait_for(Build, 30).id
            child.send_signal(signal.SIGINT)
            assert daemon.wait_for(Cancel).id == number
            assert child.communicate("\n")[0] == "interrupted\n"
        assert child.returncode == 0


# ---------------------------------------------------------------------- threads, forks, the end


def test_each_thread_has_a_session_that_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found: queue.Queue[tuple[int, str]] = queue.Queue()

    def work(number: int) -> None:
        answer = session.current(autostart=False).build(calls.request(name=f"n{number}"))
        assert isinstance(answer, Declined)
        found.put((number, answer.reason))

    with serving(declines, monkeypatch) as daemon:
        for _ in range(2):
            threads = [threading.Thread(target=work, args=[number]) for number in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        gc.collect()  # sockets that nobody closed would warn now, which is an error here
        assert len(daemon.peers) == 16
    answers = [found.get() for _ in range(16)]
    assert all(reason == f"a test, n{number}" for number, reason in answers)


def test_another_place_is_another_session(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(reports, monkeypatch):
        first = session.current(autostart=False)
        with serving(reports, monkeypatch) as other:
            session.current(autostart=False).ask(Status)
            assert len(other.received) == 2
            assert session.current(autostart=False) is not first
            session.forget()


FORKS = """
import os, sys
from warmcc.client.connection import session
from warmcc.protocol import Status
one = session.current(autostart=False)
one.ask(Status)
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        assert not one.usable()
        assert session.current(autostart=False) is not one
        session.current(autostart=False).ask(Status)
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert session.current(autostart=False) is one
    one.ask(Status)
print("parent done")
"""

THREADS_AT_THE_END = """
import threading
from warmcc.client.connection import session
from warmcc.protocol import Status
started = threading.Event()
def work():
    session.current(autostart=False).ask(Status)
    started.set()
    threading.Event().wait()
threading.Thread(target=work, daemon=True).start()
started.wait()
session.current(autostart=False).ask(Status)
kept = session.Session(autostart=False)
print("parent done")
"""


@pytest.mark.parametrize("code", [FORKS, THREADS_AT_THE_END], ids=["fork", "threads"])
def test_nothing_hangs_or_complains_at_the_end_of_a_process(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(reports, monkeypatch):
        child = subprocess.run(
            [sys.executable, "-X", "dev", "-W", "error", "-c", code],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=ROOT,
        )
    assert (child.returncode, child.stdout, child.stderr) == (0, "parent done\n", "")


def test_closing_twice_and_asking_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(reports, monkeypatch):
        one = Session(autostart=False)
        one.close()
        one.close()
        assert not one.usable()
        with pytest.raises(DaemonUnavailable, match="was closed"):
            one.ask(Status)

"""The client's way with daemons of every temper, over a real socket."""

from __future__ import annotations

import os
import socket as sockets
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support import calls
from tests.support.scripted import declines, in_a_process, reports, serving, silent, welcome
from warmcc import __version__, protocol
from warmcc.client.connection import session
from warmcc.client.connection.session import Session
from warmcc.errors import (
    ConfigError,
    DaemonError,
    DaemonTimeout,
    DaemonUnavailable,
    VersionMismatch,
    WarmccError,
)
from warmcc.protocol import (
    Build,
    Built,
    Cancel,
    Declined,
    Failed,
    Hello,
    Output,
    Progress,
    Refused,
    Report,
    Status,
)

pytestmark = pytest.mark.usefixtures("no_session_of_before")


# ---------------------------------------------------------------------- daemons that behave


def test_greeting_and_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(reports, monkeypatch) as daemon, Session(autostart=False) as one:
        assert one.welcome == welcome()
        assert one.ask(Status).data == {"you asked": "Status"}
        assert one.ask(Status) == Report(2, {"you asked": "Status"})
        hello = daemon.received[0]
        assert isinstance(hello, Hello)
        assert (hello.protocols, hello.pid) == ([protocol.PROTOCOL], os.getpid())


def test_a_failed_question_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def script(message: Any) -> Iterator[Any]:
        yield Failed(message.id, "OSError", "the disk is on fire")

    with (
        serving(script, monkeypatch),
        Session(autostart=False) as one,
        pytest.raises(WarmccError, match="on fire"),
    ):
        one.ask(Status)


def test_progress_and_output_are_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def script(message: Any) -> Iterator[Any]:
        yield Progress(message.id + 7, "another request's", 0.0)
        yield Progress(message.id, "compiling", 1.0, 1, 2)
        yield Output(message.id, "c++ -c")
        yield Built(message.id, "/x.so", "miss", 1.0)

    seen: list[Any] = []
    with serving(script, monkeypatch), Session(autostart=False) as one:
        answer = one.build(calls.request(), on_progress=seen.append, on_output=seen.append)
    assert answer == Built(1, "/x.so", "miss", 1.0)
    assert seen == [Progress(1, "compiling", 1.0, 1, 2), "c++ -c"]


def test_something_useful_happens_after_the_request_is_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving(declines, monkeypatch) as daemon, Session(autostart=False) as one:
        arrived: list[Any] = []
        one.build(calls.request(), meanwhile=lambda: arrived.append(daemon.wait_for(Build)))
    assert len(arrived) == 1


def test_a_slow_daemon_is_not_a_dead_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def script(message: Any) -> Iterator[Any]:
        for second in range(5):
            yield Progress(message.id, "compiling", float(second))
            yield 0.2
        yield Declined(message.id, "done", True)

    with serving(script, monkeypatch), Session(autostart=False, timeout=0.5) as one:
        assert isinstance(one.build(calls.request()), Declined)


def test_thousands_of_lines_wait_until_the_client_has_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def script(message: Any) -> Iterator[Any]:
        for number in range(5000):
            yield Output(message.id, f"{number}\n")
        yield Declined(message.id, "done", True)

    seen: list[str] = []
    with serving(script, monkeypatch), Session(autostart=False) as one:
        one.build(calls.request(), on_output=seen.append, meanwhile=lambda: time.sleep(0.5))
    assert seen == [f"{number}\n" for number in range(5000)]


# ---------------------------------------------------------------------- daemons that do not


def test_a_daemon_that_does_not_greet(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        serving(silent, monkeypatch, greets=False),
        pytest.raises(DaemonTimeout, match=r"`hello` within 0\.3 s"),
    ):
        Session(autostart=False, timeout=0.3)


@pytest.mark.parametrize("words", [0, 2])
def test_a_daemon_that_falls_silent(words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def script(message: Any) -> Iterator[Any]:
        for _ in range(words):
            yield Progress(message.id, "compiling", 0.0)

    with serving(script, monkeypatch) as daemon, Session(autostart=False, timeout=0.3) as one:
        with pytest.raises(DaemonTimeout, match=r"no message from the daemon for 0\.3 s"):
            one.build(calls.request())
        assert daemon.wait_for(Cancel).id == 1, (
            "it may only have been slow: nobody waits for it any more"
        )


def test_the_time_limit_is_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARMCC_TIMEOUT", "0.2")
    with (
        serving(silent, monkeypatch),
        Session(autostart=False) as one,
        pytest.raises(DaemonTimeout, match=r"0\.2 s"),
    ):
        one.ask(Status)


@pytest.mark.parametrize("value", ["soon", "0", "-1", "nan", "inf"])
def test_a_time_limit_that_is_none(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARMCC_TIMEOUT", value)
    with pytest.raises(
        ConfigError, match=f"WARMCC_TIMEOUT must be a number of seconds above 0, not '{value}'"
    ):
        Session(autostart=False)


GARBAGE = {
    "not msgpack": [protocol.MAGIC, b"\xc1\xc1"],
    "empty": [protocol.MAGIC, b""],
    "a map of nothing": [protocol.MAGIC, b"\x80"],
    "an unknown type": [protocol.MAGIC, msgspec.msgpack.encode({"type": "surprise"})],
    "wrong field types": [protocol.MAGIC, msgspec.msgpack.encode({"type": "built", "id": "one"})],
    "other magic": [b"ccache", protocol.encode(Report(1, {}))],
    "one frame": [protocol.MAGIC],
    "three frames": [protocol.MAGIC, protocol.encode(Report(1, {})), b""],
}


@pytest.mark.parametrize("what", GARBAGE)
def test_a_daemon_that_babbles(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def script(_message: Any) -> Iterator[Any]:
        yield list(GARBAGE[what])

    with (
        serving(script, monkeypatch),
        Session(autostart=False) as one,
        pytest.raises(DaemonError, match="invalid message"),
    ):
        one.ask(Status)
    with (
        serving(script, monkeypatch, greets=False),
        pytest.raises(DaemonError, match="invalid message"),
    ):
        Session(autostart=False)


def test_an_answer_of_the_wrong_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    expect = pytest.raises
    with (
        serving(reports, monkeypatch),
        Session(autostart=False) as one,
        expect(DaemonError, match="build with Report"),
    ):
        one.build(calls.request())
    with (
        serving(declines, monkeypatch),
        Session(autostart=False) as one,
        expect(DaemonError, match="with Declined"),
    ):
        one.ask(lambda number: Build(number, calls.request()))
    reported = serving(lambda _: iter([Report(1, {})]), monkeypatch, greets=False)
    with reported, expect(DaemonError, match="unexpected reply to `hello`: Report"):
        Session(autostart=False)


@pytest.mark.parametrize(
    "answer",
    [
        Refused([7, 8], "9.9.9", "too old"),
        msgspec.structs.replace(welcome(), protocol=7, version="9.9.9"),
    ],
    ids=lambda answer: type(answer).__name__,
)
def test_a_daemon_of_another_version(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        serving(lambda _: iter([answer]), monkeypatch, greets=False),
        pytest.raises(VersionMismatch) as caught,
    ):
        Session(autostart=True)
    text = str(caught.value)
    assert f"warmcc {__version__} (protocol {protocol.PROTOCOL})" in text
    assert "9.9.9" in text and "protocol 7" in text and "warmcc stop; warmcc start" in text


def test_a_message_that_is_refused_is_a_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def script(_message: Any) -> Iterator[Any]:
        yield Refused([protocol.PROTOCOL], "1", "the first message must be hello")

    lost = pytest.raises(DaemonUnavailable, match="first message must be hello")
    with serving(script, monkeypatch), Session(autostart=False) as one, lost:
        one.ask(Status)


# ---------------------------------------------------------------------- daemons that are not there


def test_no_daemon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WARMCC_RUNTIME_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(DaemonUnavailable, match="warmcc start"):
        Session(autostart=False)
    tmp_path.chmod(0o700)
    monkeypatch.setenv("WARMCC_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(DaemonUnavailable, match="warmcc start"):
        Session(autostart=False)


def test_the_socket_of_a_dead_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("WARMCC_RUNTIME_DIR", folder)
        with sockets.socket(sockets.AF_UNIX) as one:
            one.bind(f"{folder}/daemon.sock")
        started = time.monotonic()
        with pytest.raises(DaemonUnavailable):
            Session(autostart=False)
        assert time.monotonic() - started < 1.0


@pytest.mark.parametrize("mode", [0o755, 0o710, 0o777])
def test_a_folder_that_is_open_to_others_is_not_trusted(
    mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(reports, monkeypatch) as daemon:
        folder = os.environ["WARMCC_RUNTIME_DIR"]
        os.chmod(folder, mode)
        with pytest.raises(DaemonError, match="not private to you"):
            Session(autostart=False)
        assert daemon.received == []


def test_a_link_to_a_folder_is_not_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with serving(reports, monkeypatch):
        link = tmp_path / "link"
        link.symlink_to(os.environ["WARMCC_RUNTIME_DIR"])
        monkeypatch.setenv("WARMCC_RUNTIME_DIR", str(link))
        with pytest.raises(DaemonError, match="not private to you"):
            Session(autostart=False)


def test_a_killed_daemon_is_noticed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("WARMCC_RUNTIME_DIR", folder)
        child = in_a_process(folder)
        with Session(autostart=False) as one, child:
            assert one.usable()
            threading.Timer(0.3, child.kill).start()
            started = time.monotonic()
            with pytest.raises(DaemonUnavailable, match="was lost"):
                one.build(calls.request())
            assert time.monotonic() - started < 1.3
            assert not one.usable()


def test_a_daemon_killed_between_two_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("WARMCC_RUNTIME_DIR", folder)
        with in_a_process(folder) as child:
            first = session.current(autostart=False)
            assert session.current(autostart=False) is first
            child.kill()
            child.wait()
        time.sleep(0.1)
        with pytest.raises(DaemonUnavailable):
            session.current(autostart=False)
        with in_a_process(folder) as child:
            assert session.current(autostart=False) is not first
            child.kill()

"""What a daemon warms up for: its own environment at the start, and those of the requests that it
has to compile.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest
import zmq

from tests.support.calls import Connection, interpreter, module_source, request
from tests.support.daemons import Daemon
from warmcc.daemon.system import background
from warmcc.protocol import Built, Stock
from warmcc.request import Request

Context = zmq.Context[zmq.Socket[bytes]]
NO_COMPILER = {"CXX": "/nonexistent/c++"}


def of(number: int, **variables: str) -> Request:
    """A request that nobody has made before, with these variables besides the usual ones."""
    environment = {**request().environment, **variables}
    return request(cpp_sources=[module_source(number)], environment=environment)


def warmcc(daemon: Daemon, command: str) -> str:
    """What a command prints."""
    environment = {**os.environ, **daemon.environment}
    return subprocess.run(
        [sys.executable, "-m", "warmcc.client.cli", command],
        env=environment,
        capture_output=True,
        text=True,
        cwd="/",
    ).stdout


def warmed(daemon: Daemon, seconds: float = 60.0) -> list[dict[str, Any]]:
    """All targets, once nothing is left to do."""
    deadline = time.monotonic() + seconds
    while (status := daemon.status())["prewarming"]:
        assert time.monotonic() < deadline, daemon.log()
        time.sleep(0.1)
    targets: list[dict[str, Any]] = status["prewarmed"]
    return targets


@pytest.mark.slow
def test_it_learns_from_requests_that_it_compiles(
    fresh_daemon: Callable[..., Daemon], context: Context
) -> None:
    daemon = fresh_daemon(prewarm=None, pch=False)  # so that warming up takes no time
    connection = Connection(daemon, context)
    (own,) = warmed(daemon)
    assert (own["language"], own["learned"], own["state"]) == ("C++", False, "warm")

    assert isinstance(
        connection.build(of(1)), Built
    )  # in the daemon's own environment, which is warm
    assert own["served"] == 0 and not own["why_not"], "no request has come yet"
    assert warmed(daemon) == [{**own, "served": 1}]
    for number in range(2, 4):
        assert isinstance(connection.build(of(number, LIBRARY_PATH="/usr/lib")), Built)
    own, learned = warmed(daemon)
    assert (learned["learned"], learned["state"]) == (True, "warm")
    assert learned["variables"] == {**own["variables"], "LIBRARY_PATH": "/usr/lib"}
    assert learned["python"] == interpreter().executable

    hit = connection.build(of(3, LIBRARY_PATH="/usr/lib"))
    assert isinstance(hit, Built) and hit.outcome == "hit"
    for number in range(4, 8):
        assert isinstance(connection.build(of(number, LIBRARY_PATH=f"/usr/lib/{number}")), Built)
    assert len(warmed(daemon)) == 1 + 4, "each costs minutes of a processor: only so many"


@pytest.mark.slow
def test_what_is_not_warmed_up_at_start_is_not_learned(
    fresh_daemon: Callable[..., Daemon], context: Context
) -> None:
    daemon = fresh_daemon(prewarm=[])
    assert isinstance(Connection(daemon, context).build(of(1, LIBRARY_PATH="/usr/lib")), Built)
    assert warmed(daemon) == []


@pytest.mark.slow
def test_a_target_that_cannot_be_made_warm_says_why(context: Context) -> None:
    """As a service started at boot, whose environment is not the caller's."""
    daemon = Daemon(prewarm=None, pch=False)
    daemon.environment |= NO_COMPILER
    try:
        daemon.start()
        (own,) = warmed(daemon)
        assert own["state"].startswith("failed: ") and "/nonexistent/c++" in own["state"]
        deadline = time.monotonic() + 60
        while not daemon.status()["zygotes"]:  # torch is imported while compilers are looked at
            assert time.monotonic() < deadline, daemon.log()
            time.sleep(0.1)
        assert isinstance(Connection(daemon, context).build(of(1)), Built)
        assert [(one["learned"], one["state"]) for one in warmed(daemon)[1:]] == [(True, "warm")]
        daemon.stop()
    finally:
        daemon.discard()


@pytest.mark.slow
def test_what_serves_nobody_says_why(context: Context) -> None:
    """The daemon of another shell, with a variable that no request has."""
    daemon = Daemon(prewarm=None, pch=False, ccache=False)
    daemon.environment |= {"LIBRARY_PATH": "/usr/lib/other"}
    try:
        daemon.start()
        (own,) = warmed(daemon)
        assert (own["served"], own["why_not"]) == (0, ""), "nobody has asked yet"
        for number in range(1, 3):
            assert isinstance(
                Connection(daemon, context).build(of(number, LIBRARY_PATH="/usr/lib")), Built
            )
        own, learned = warmed(daemon)
        assert (own["served"], own["why_not"]) == (
            0,
            "its callers' environment has another LIBRARY_PATH: /usr/lib",
        )
        assert (learned["served"], learned["why_not"]) == (2, "")
        for command, told in (("status", 1), ("doctor", 2)):
            shown = warmcc(daemon, command).splitlines()
            (line,) = [
                number
                for number, text in enumerate(shown)
                if "another LIBRARY_PATH: /usr/lib" in text
            ]
            assert "has not served any build" in shown[line]
            assert told == 1 or "warmcc stop; warmcc start" in shown[line + 1]
        daemon.stop()
    finally:
        daemon.discard()


@pytest.mark.slow
def test_the_second_request_of_an_unknown_environment_is_warm(context: Context) -> None:
    """The first is compiled as it can be; behind it comes all that the daemon would have made at
    its start.
    """
    assert "CXX" not in os.environ
    daemon = Daemon(prewarm=None, lean=False, ccache=False)
    daemon.environment |= NO_COMPILER
    source = "at::Tensor twice(at::Tensor x) { return x + x; }\n"
    try:
        daemon.start()
        connection = Connection(daemon, context)
        assert isinstance(connection.build(of(1)), Built)
        assert warmed(daemon, 500)[-1]["state"] == "warm"
        before = daemon.status()
        wanted = request(cpp_sources=[source], functions=["twice"], no_implicit_headers=False)
        assert isinstance(connection.build(wanted), Built)
        after = daemon.status()
        assert after["accelerators"]["pch"]["used"] > before["accelerators"]["pch"]["used"]
        assert after["units_reused"] > before["units_reused"], "what all extensions share was there"
        daemon.stop()
    finally:
        daemon.discard()


@pytest.mark.slow
def test_common_flags_are_warm_when_they_first_come(context: Context) -> None:
    """Nobody has asked for them, and the daemon had nothing else to do."""
    daemon = Daemon(prewarm=None, prewarm_idle=["-O2"], lean=False, ccache=False)
    source = "at::Tensor thrice(at::Tensor x) { return x + x + x; }\n"
    try:
        daemon.start()
        assert [one["state"] for one in warmed(daemon, 500)] == ["warm"]
        deadline = time.monotonic() + 300
        while [one["state"] for one in daemon.status()["profiles"]].count("ready") < 2:
            assert time.monotonic() < deadline, daemon.log()
            time.sleep(0.5)
        before = daemon.status()["accelerators"]["pch"]["used"]
        wanted = request(
            cpp_sources=[source],
            functions=["thrice"],
            no_implicit_headers=False,
            extra_cflags=["-O2", "-DMINE=3"],
        )
        assert isinstance(Connection(daemon, context).build(wanted), Built)
        assert daemon.status()["accelerators"]["pch"]["used"] > before
        daemon.stop()
    finally:
        daemon.discard()


def precompiling(daemon: Daemon) -> set[str]:
    """In which states the compilers are that make what is ahead of need."""
    found = set()
    for process in psutil.Process(daemon.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.name() == "cc1plus" and "prelude.h" in process.cmdline():
                found.add(process.status())
    return found


def until(daemon: Daemon, condition: Callable[[set[str]], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition(precompiling(daemon)):
        assert time.monotonic() < deadline, daemon.log()
        time.sleep(0.02)


@pytest.mark.slow
def test_who_asks_for_the_status_holds_up_little(fresh_daemon: Callable[..., Daemon]) -> None:
    """What is made ahead of need stands still for builds and their callers; for questions only for
    the moment in which a client comes."""
    daemon = fresh_daemon(prewarm=None)
    until(daemon, bool)
    seen = []
    for _ in range(30):
        daemon.status()
        for _ in range(5):
            seen.append(psutil.STATUS_STOPPED in precompiling(daemon))
            time.sleep(0.01)
    assert sum(seen) < len(seen) / 2


@pytest.mark.slow
def test_a_client_that_comes_finds_the_processors_free(
    fresh_daemon: Callable[..., Daemon], context: Context
) -> None:
    daemon = fresh_daemon(prewarm=None)
    until(daemon, bool)

    def comes(_: set[str]) -> bool:
        time.sleep(background._HELD_AGAIN_SECONDS)
        client = Connection(daemon, context)
        states = precompiling(daemon)
        client.close()
        return psutil.STATUS_STOPPED in states

    until(daemon, comes)
    until(daemon, lambda states: bool(states) and psutil.STATUS_STOPPED not in states)


@pytest.mark.slow
def test_a_build_by_stock_holds_up_what_is_made_ahead(
    fresh_daemon: Callable[..., Daemon], context: Context
) -> None:
    """Until its process says that it is over, or is gone."""
    daemon = fresh_daemon(prewarm=None)
    until(daemon, bool)
    for ends in (True, False):
        client = Connection(daemon, context)
        client.send(Stock(builds=True))
        until(daemon, lambda states: states == {psutil.STATUS_STOPPED})
        if ends:
            client.send(Stock(builds=False))
        else:
            client.close()
        until(daemon, lambda states: bool(states) and psutil.STATUS_STOPPED not in states)


@pytest.mark.slow
def test_a_hit_holds_up_nothing(fresh_daemon: Callable[..., Daemon], context: Context) -> None:
    """It takes less time than to stop and continue what is made ahead; a build does not."""
    daemon = fresh_daemon(prewarm=None)
    until(daemon, bool)
    connection, wanted = Connection(daemon, context), of(4)
    assert isinstance(built := connection.build(wanted), Built) and built.outcome == "miss"
    until(daemon, lambda states: states == {psutil.STATUS_STOPPED})
    until(daemon, lambda states: bool(states) and psutil.STATUS_STOPPED not in states)
    for _ in range(10):
        assert isinstance(built := connection.build(wanted), Built) and built.outcome == "hit"
        for _ in range(5):
            assert psutil.STATUS_STOPPED not in precompiling(daemon)
            time.sleep(0.01)

"""Overload: each distinct source is compiled once, clients take turns, and too many are told when
to come back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import zmq

import warmcc
from tests.support import calls, load
from tests.support.calls import Connection, module_source, request
from tests.support.daemons import Daemon
from warmcc.protocol import Built, Busy

SLOW = '#include <regex>\nstatic std::regex pattern("a+");\n'


@pytest.mark.slow
def test_100_clients_with_20_requests_each_compile_50_sources_50_times(
    fresh_daemon: Callable[..., Daemon],
) -> None:
    daemon = fresh_daemon(ccache=False)
    found = load.put(daemon, clients=100, requests=20, sources=50)
    assert found.wrong == []
    assert len(found.waits) == 2000
    for answer, paths in found.built.items():
        (path,) = paths
        assert calls.load(Built(1, path, "hit", 0.0), "tiny").answer() == answer
    status = daemon.status()
    assert (status["compiles"], status["requests"]["misses"]) == (50, 50)


@pytest.mark.slow
def test_a_client_with_one_request_does_not_wait_for_all_of_another(
    fresh_daemon: Callable[..., Daemon], context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    daemon = fresh_daemon(ccache=False, jobs=1)
    greedy, modest = Connection(daemon, context), Connection(daemon, context)
    for number in range(8):
        greedy.ask(request(cpp_sources=[SLOW + module_source(number)]))
    assert isinstance(greedy.answer(), Built)
    assert isinstance(modest.build(request(cpp_sources=[SLOW + module_source(99)])), Built)
    # What ran when it came, one that was in front of it, and what began to link meanwhile; of nine.
    assert daemon.status()["requests"]["misses"] < 7, (
        "it had to wait until the other one had everything"
    )
    assert all(isinstance(greedy.answer(), Built) for _ in range(7))


@pytest.mark.slow
def test_busy(fresh_daemon: Callable[..., Daemon], context: zmq.Context[zmq.Socket[bytes]]) -> None:
    daemon = fresh_daemon(ccache=False, jobs=1, queue=2)
    connection = Connection(daemon, context)
    assert isinstance(connection.build(request()), Built)
    for number in range(4):
        connection.ask(request(cpp_sources=[SLOW + module_source(number)]))
    answers = [connection.answer() for _ in range(4)]
    turned_away = [answer for answer in answers if isinstance(answer, Busy)]
    assert len(turned_away) == 2
    assert all(answer.seconds >= 0.5 and answer.waiting == 2 for answer in turned_away)
    assert isinstance(connection.build(request()), Built), "a hit waits for nobody"
    assert daemon.status()["requests"]["busy"] == 2


@pytest.mark.slow
@pytest.mark.usefixtures("no_session_of_before")
def test_a_client_comes_back_when_the_daemon_was_busy(
    fresh_daemon: Callable[..., Daemon],
    context: zmq.Context[zmq.Socket[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    daemon = fresh_daemon(ccache=False, jobs=1, queue=1)
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)
    connection = Connection(daemon, context)
    assert isinstance(connection.build(request()), Built)
    blocking = threading.Event()

    def block() -> None:
        connection.ask(request(cpp_sources=[SLOW + module_source(1)], extra_cflags=["-O2"]))
        while not daemon.status()["flights"]:
            pass
        blocking.set()

    thread = threading.Thread(target=block)
    thread.start()
    assert blocking.wait(20)
    thread.join()
    module = warmcc.load_inline(
        "came_back", module_source(5, "came_back"), no_implicit_headers=True
    )
    assert module.answer() == 5
    assert daemon.status()["requests"]["busy"] >= 1

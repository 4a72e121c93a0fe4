"""kill -9 of the daemon at random moments of a build: each client gets its module or a clear error, nothing is left."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psutil
import zmq

from tests.calls import Connection, module_source, request
from tests.daemons import Daemon
from warmcc.protocol import Built, Cache, Report

Context = zmq.Context[zmq.Socket[bytes]]
KILLS = 50
SOURCE = '#include <regex>\nstatic std::regex pattern("a+");\n'  # about a second of work


def runs(process: psutil.Process, program: str) -> bool:
    """Whether a process is the program or script of this name (and not one that only mentions it)."""
    with contextlib.suppress(psutil.Error):
        return program in [os.path.basename(word) for word in process.cmdline()]
    return False


def test_50_kills_of_the_daemon(fresh_daemon: Callable[..., Daemon]) -> None:
    """Two daemons, side by side, die at random moments of a build; the next ones serve the same requests rightly."""
    daemons = [fresh_daemon(pch=False, ccache=False) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        answered = sum(pool.map(die_and_come_back, daemons, (20261121, 20261122)))
    assert 0 < answered < KILLS, "the moments were not spread over the build"


def die_and_come_back(daemon: Daemon, seed: int) -> int:
    """Half of the kills; gives how many builds were answered before."""
    chance = random.Random(seed)
    answered = 0
    with zmq.Context() as context:
        for number in range(KILLS // 2):
            connection = Connection(daemon, context)
            connection.ask(request(cpp_sources=[SOURCE + module_source(number)]))
            delay = chance.uniform(0.0, 5.0)  # the zygote imports torch for 2 s of it
            try:
                answer = connection.answer(seconds=delay)
                assert isinstance(answer, Built), answer
                answered += 1
            except TimeoutError:
                pass
            family = daemon.processes()
            daemon.kill()
            assert not (left := daemon.left_over(family)), left
            connection.close()
            daemon.start()
        connection = Connection(daemon, context)
        again = [connection.build(request(cpp_sources=[SOURCE + module_source(n)])) for n in (0, KILLS // 2 - 1)]
        assert all(isinstance(answer, Built) for answer in again)
        connection.close()
    report = daemon.ask(Cache(1, "verify"))
    assert isinstance(report, Report)
    assert report.data["damaged"] == 0
    assert list((daemon.cache_dir / "store" / "staging").iterdir()) == []
    return answered


def test_a_killed_compiler_is_a_compile_error_and_a_killed_reaper_is_replaced(
    fresh_daemon: Callable[..., Daemon],
    context: Context,
) -> None:
    daemon = fresh_daemon(pch=False, ccache=False)
    connection = Connection(daemon, context)
    assert isinstance(connection.build(request()), Built)  # also asks the compiler what it is, which starts cc1plus
    for victim in ("cc1plus", "reaper.py"):
        connection.ask(request(cpp_sources=[SOURCE + module_source(len(victim))], extra_cflags=["-O3"]))
        deadline = time.monotonic() + 20
        found = None
        while found is None and time.monotonic() < deadline:
            found = next((p for p in daemon.processes() if runs(p, victim)), None)
        assert found is not None
        found.kill()
        answer = connection.answer()
        assert isinstance(answer, Built) == (victim != "cc1plus"), answer
    assert isinstance(connection.build(request(cpp_sources=[module_source(2)])), Built)


def test_a_killed_zygote_is_replaced(fresh_daemon: Callable[..., Daemon], context: Context) -> None:
    daemon = fresh_daemon(pch=False, ccache=False)
    connection = Connection(daemon, context)
    assert isinstance(connection.build(request()), Built)
    (zygote,) = [p for p in daemon.processes() if runs(p, "worker.py")]
    zygote.kill()
    assert isinstance(connection.build(request(cpp_sources=[module_source(2)])), Built)

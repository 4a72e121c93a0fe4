"""kill -9 of each kind of process, at random moments of a build: the client gets its module or a
clear error, the next one is served, nothing is left. WARMCC_KILLS says how many (``make fault``:
300), WARMCC_SEED in which order."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable

import pytest
import zmq

from tests.support import calls
from tests.support.calls import Connection, module_source, request
from tests.support.daemons import Daemon
from tests.support.fault.victims import met, runs
from warmcc.protocol import Built, Cache, Failed, Report
from warmcc.request import Request

Context = zmq.Context[zmq.Socket[bytes]]
KILLS = int(os.environ.get("WARMCC_KILLS", "8"))
SEED = int(os.environ.get("WARMCC_SEED", "20261121"))
VICTIMS = ("daemon", "zygote_main.py", "ninja", "cc1plus", "as", "linker", "reaper.py", "client")
NOT_MET = " before it was met"
SOURCE = '#include <regex>\nstatic std::regex pattern("a+");\n'  # about a second of work


@pytest.mark.slow
@pytest.mark.timeout(120 + 15 * KILLS)
def test_kills(fresh_daemon: Callable[..., Daemon], context: Context) -> None:
    """Whoever dies: the client gets its module or a clear answer, the same request is served, and
    nothing is left.
    """
    daemon = fresh_daemon(pch=False, ccache=False)
    chance = random.Random(SEED)
    told: Counter[str] = Counter()
    connection = Connection(daemon, context)
    assert isinstance(connection.build(request()), Built)
    kills = 0
    for number in itertools.count():
        victim = VICTIMS[number % len(VICTIMS)]
        wanted = request(cpp_sources=[SOURCE + module_source(number)])
        family = daemon.processes()
        given = killed(daemon, connection, wanted, victim, chance)
        told[f"{victim}: {given}"] += 1
        kills += NOT_MET not in given
        if victim == "daemon":
            assert not (left := daemon.left_over(family)), left
            connection.close()
            daemon.start()
            connection = Connection(daemon, context)
        again = connection.build(wanted)
        assert calls.load(again, "tiny").answer() == number, again
        if kills == KILLS:
            break
        assert number < 2 * KILLS, told
    print("\n".join(f"{count:>4} {what}" for what, count in sorted(told.items())))
    report = daemon.ask(Cache(1, "verify"))
    assert isinstance(report, Report)
    assert report.data["damaged"] == 0
    assert list((daemon.cache_dir / "store" / "staging").iterdir()) == []
    (temporary,) = (daemon.cache_dir / "tmp").iterdir()
    assert not [
        path for path in temporary.rglob("*") if path != temporary / "plans"
    ]  # where plans are made
    assert not [
        one
        for one in daemon.processes()
        if any(runs(one, program) for program in ("ninja", "cc1plus", "ld"))
    ]


def killed(
    daemon: Daemon, connection: Connection, wanted: Request, victim: str, chance: random.Random
) -> str:
    """Have something built, kill the victim meanwhile, and say how the client was answered."""
    if victim == "client":
        call = (
            f"import warmcc; warmcc.load_inline('tiny', {wanted.cpp_sources[0]!r}, "
            f"no_implicit_headers=True)"
        )
        with subprocess.Popen(
            [sys.executable, "-c", call], env={**os.environ, **daemon.environment}
        ) as client:
            while client.poll() is None and not met(daemon, "ninja"):
                time.sleep(0.002)
            time.sleep(chance.uniform(0.0, 0.5))
            alive = client.poll() is None
            client.kill()
        return "gone" if alive else f"had its module{NOT_MET}"
    connection.ask(wanted)
    if victim in ("daemon", "zygote_main.py", "reaper.py"):
        time.sleep(chance.uniform(0.0, 1.0))
    if victim == "daemon":
        daemon.kill()
        try:
            return f"{type(connection.answer(seconds=1.0)).__name__}{NOT_MET}"
        except TimeoutError:
            return "no answer"
    done, answer = False, None
    while not done and answer is None:
        for pid in met(daemon, victim):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                done = True
        with contextlib.suppress(TimeoutError):
            answer = connection.answer(seconds=0.002)
    answer = answer or connection.answer()
    if isinstance(answer, Failed):
        assert "Killed" in answer.message, answer
    return f"{type(answer).__name__}{'' if done else NOT_MET}"


@pytest.mark.slow
def test_a_killed_compiler_runs_again_and_a_killed_reaper_is_replaced(
    fresh_daemon: Callable[..., Daemon],
    context: Context,
) -> None:
    daemon = fresh_daemon(pch=False, ccache=False)
    connection = Connection(daemon, context)
    assert isinstance(
        connection.build(request()), Built
    )  # also asks the compiler what it is, which starts cc1plus
    for victim in ("cc1plus", "reaper.py"):
        connection.ask(
            request(cpp_sources=[SOURCE + module_source(len(victim))], extra_cflags=["-O3"])
        )
        deadline = time.monotonic() + 20
        found = None
        while found is None and time.monotonic() < deadline:
            found = next((p for p in daemon.processes() if runs(p, victim)), None)
        assert found is not None
        found.kill()
        answer = connection.answer()
        assert isinstance(answer, Built), answer
    assert isinstance(connection.build(request(cpp_sources=[module_source(2)])), Built)


@pytest.mark.slow
def test_a_killed_zygote_is_replaced(fresh_daemon: Callable[..., Daemon], context: Context) -> None:
    daemon = fresh_daemon(pch=False, ccache=False)
    connection = Connection(daemon, context)
    assert isinstance(connection.build(request()), Built)
    (zygote,) = [p for p in daemon.processes() if runs(p, "zygote_main.py")]
    zygote.kill()
    assert isinstance(connection.build(request(cpp_sources=[module_source(2)])), Built)


@pytest.mark.slow
def test_killed_zygotes_take_no_other_request_with_them(
    fresh_daemon: Callable[..., Daemon], context: Context
) -> None:
    """Requests that wait for the zygote's successor are not cancelled when one of them finds the
    dead one.
    """
    daemon = fresh_daemon(pch=False, ccache=False)
    connections = [Connection(daemon, context) for _ in range(8)]
    assert isinstance(connections[0].build(request()), Built)
    for turn in range(4):
        for place, connection in enumerate(connections):
            connection.ask(request(cpp_sources=[module_source(1000 + turn * 100 + place)]))
            if place in (2, 5):
                for pid in met(daemon, "zygote_main.py"):
                    os.kill(pid, signal.SIGKILL)
        answers = [connection.answer() for connection in connections]
        assert not [one for one in answers if "the daemon was stopped" in str(one)]
        again = [
            connection.build(request(cpp_sources=[module_source(1000 + turn * 100 + place)]))
            for place, connection in enumerate(connections)
        ]
        assert all(isinstance(one, Built) for one in again)

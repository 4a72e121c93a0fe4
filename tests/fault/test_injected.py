"""The N-th call of a kind that the daemon makes fails, for N = 1 … until a build meets no failure
any more.

Each time the client gets its module or one clear answer, and the same request is served as if
nothing had been. WARMCC_FAULTS=all tries every kind with every error; by default some kinds fail
with one of them. Which calls there are is in injecting.py.
"""

from __future__ import annotations

import errno
import itertools
import os
import time
from collections.abc import Iterator

import psutil
import pytest
import zmq

from tests.support import calls
from tests.support.calls import Connection, module_source, request
from tests.support.daemons import Daemon
from tests.support.fault.injecting import ERRORS, Injector
from warmcc.protocol import Built, Cache, Declined

ALL = os.environ.get("WARMCC_FAULTS") == "all"
CASES = [
    ("write", "ENOSPC"),
    ("fsync", "EIO"),
    ("rename", "EACCES"),
    ("open", "EMFILE"),
    ("fork", "EAGAIN"),
]
OF_A_BUILD = ("write", "fsync", "rename", "open", "read", "mkdir", "unlink", "fork", "exec", "pipe")
EVERY = [(kind, error) for kind in OF_A_BUILD for error in ERRORS[kind]] if ALL else CASES


@pytest.fixture(scope="module")
def injected() -> Iterator[tuple[Daemon, Injector]]:
    daemon = Daemon(ccache=False, pch=False)
    injector = Injector(daemon.folder, daemon.cache_dir)
    daemon.environment |= injector.environment
    try:
        yield daemon.start(), injector
        daemon.stop()
    finally:
        daemon.discard()
        injector.close()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("kind", "error"),
    # One of them stands for the others in `make test`.
    [
        pytest.param(*one, marks=[] if one == ("fsync", "EIO") else pytest.mark.slow)
        for one in EVERY
    ],
)
def test_the_nth_call_fails(
    kind: str,
    error: str,
    injected: tuple[Daemon, Injector],
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    daemon, injector = injected
    connection = Connection(daemon, context)
    assert isinstance(connection.build(request()), Built)
    before = psutil.Process(daemon.pid).num_fds()
    declined = 0
    for number in itertools.count(1):
        answer = EVERY.index((kind, error)) * 1000 + number
        wanted = request(cpp_sources=[module_source(answer)])
        injector.arm(kind, error, number)
        given = connection.build(wanted, seconds=60)
        made, failed = injector.disarm()
        if isinstance(given, Declined):
            declined += 1
            assert os.strerror(getattr(errno, error)) in given.reason, given
            given = connection.build(wanted)
        assert isinstance(given, Built), given
        assert calls.load(given, "tiny").answer() == answer
        again = connection.build(wanted)
        assert isinstance(again, Built), again
        if not failed:
            break
        assert number < 300, "the calls of a build do not come to an end"
    print(f"{kind} {error}: {number} builds, {declined} declined")
    assert made[kind] < number
    assert number > 1, "no call was met"
    report = daemon.ask(Cache(1, "verify"))
    assert report.data["damaged"] == 0, report
    assert list((daemon.cache_dir / "store" / "staging").iterdir()) == []
    connection.close()
    deadline = time.monotonic() + 10
    while (now := psutil.Process(daemon.pid).num_fds()) > before and time.monotonic() < deadline:
        time.sleep(0.1)  # the connection is closed on its own time
    assert now <= before

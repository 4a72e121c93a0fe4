"""More connections than there are file descriptors: the daemon lives, who was connected is served,
and so is who comes afterwards. Raw sockets that never say a word, and ZeroMQ's own from several
processes.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import psutil
import pytest
import zmq

from tests.support.calls import Connection, request
from tests.support.daemons import Daemon
from warmcc import __version__, protocol, zmtp
from warmcc.client.connection.session import Session
from warmcc.daemon.serve import door
from warmcc.errors import DaemonBusy
from warmcc.protocol import Built, Welcome

Context = zmq.Context[zmq.Socket[bytes]]
CROWD = """
import contextlib, os, sys, time, zmq
from warmcc import __version__, protocol
hello = protocol.encode(protocol.Hello([protocol.PROTOCOL], __version__, os.getpid()))
context = zmq.Context()
context.set(zmq.MAX_SOCKETS, 20000)


def client():
    one = context.socket(zmq.DEALER)
    one.linger = 0
    one.reconnect_ivl = -1
    one.connect("ipc://" + sys.argv[1])
    with contextlib.suppress(zmq.Again):  # it was shown the door already
        one.send_multipart([protocol.MAGIC, hello], flags=zmq.NOBLOCK)
    return one


answered = {"Welcome": [], "Refused": []}
waiting = []
missing = int(sys.argv[2])
# Who found the kernel's queue full, or was dropped before its hello, comes again.
for _ in range(int(sys.argv[3])):
    for one in waiting:
        one.close()
    waiting = [client() for _ in range(missing)]
    deadline = time.monotonic() + 10
    for one in waiting[:]:
        if one.poll(max(0, 1000 * (deadline - time.monotonic()))):
            kind = type(protocol.decode_daemon_message(one.recv_multipart()[1])).__name__
            answered[kind].append(one)
            waiting.remove(one)
    missing = len(waiting)
    if not missing:
        break
print(len(answered["Welcome"]), len(answered["Refused"]), missing, flush=True)
sys.stdin.read()
context.destroy(0)
"""


@contextlib.contextmanager
def limited(files: int, soft: int = 0) -> Iterator[Daemon]:
    """A daemon that may have this many open files and no more (0: all that there may be), and
    begins with ``soft``.
    """
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = files or hard
    limits = f"ulimit -Sn {soft or min(files, before)}; ulimit -Hn {files}"
    daemon = Daemon(pch=False, ccache=False)
    try:
        yield daemon.start(["/bin/sh", "-c", f"{limits}; exec {sys.executable} -m warmcc.daemon"])
        daemon.stop()
    finally:
        daemon.discard()


def raw(daemon: Daemon, count: int, *, greeting: bytes = b"") -> list[socket.socket]:
    """Connections that say nothing, or only a greeting; as many as are taken."""
    made = []
    for _ in range(count):
        one = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            one.connect(str(daemon.socket))
            one.sendall(greeting)
        made.append(one)
    return made


@pytest.fixture
def many_files() -> Iterator[None]:
    """This process may have as many open files as it can."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < 12_000:
        pytest.skip(
            f"the hard limit of open files is {before[1]}: 10,000 connections cannot be made here"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.slow
@pytest.mark.parametrize("files", [512, 0], ids=["512 files", "as many as there are"])
@pytest.mark.parametrize("greeting", [b"", zmtp.GREETING, b"x"], ids=["silent", "greeted", "noise"])
@pytest.mark.usefixtures("many_files")
def test_10_000_connections_that_never_say_hello(
    greeting: bytes, files: int, context: Context
) -> None:
    with limited(files) as daemon:
        before = Connection(daemon, context)
        crowd = raw(daemon, 10_000, greeting=greeting)
        assert isinstance(before.build(request()), Built), "who was connected is served"
        assert isinstance(Connection(daemon, context).build(request()), Built), (
            "and so is who comes while they stay"
        )
        for one in crowd:
            one.close()
        assert isinstance(Connection(daemon, context).build(request()), Built)
        wait_for_files(daemon, 100)


@contextlib.contextmanager
def crowd(daemon: Daemon, clients: int, rounds: int) -> Iterator[subprocess.Popen[str]]:
    """A process with this many ZeroMQ clients. It says how many were welcome, were refused and
    heard nothing.
    """
    command = [sys.executable, "-c", CROWD, str(daemon.socket), str(clients), str(rounds)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("files", [512, 0], ids=["512 files", "as many as there are"])
def test_10_000_clients_of_several_processes(files: int, context: Context) -> None:
    with limited(files) as daemon:
        before = Connection(daemon, context)
        room = daemon_places(files)
        with contextlib.ExitStack() as stack:
            processes = [
                stack.enter_context(crowd(daemon, 2500, 1 if files else 30)) for _ in range(4)
            ]
            told = [
                process.stdout.readline() for process in processes if process.stdout is not None
            ]
            welcome = sum(int(line.split()[0]) for line in told)
            assert welcome == min(10_000, room - 1), told
            assert isinstance(before.build(request()), Built), "who was connected is served"
        deadline = time.monotonic() + 20
        while (status := daemon.status())["clients"] > 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert isinstance(Connection(daemon, context).build(request()), Built), (
            "who comes afterwards is served"
        )
        assert (status["requests"]["turned_away"] > 0) == (welcome < 10_000)


def daemon_places(files: int) -> int:
    """How many clients a daemon with this many open files takes."""
    limit = files or resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    every = limit - min(1024, limit // 2)
    return every - every // 4


def wait_for_files(daemon: Daemon, most: int) -> None:
    deadline = time.monotonic() + 20
    while (count := psutil.Process(daemon.pid).num_fds()) > most and time.monotonic() < deadline:
        time.sleep(0.1)
    assert count <= most, f"{count} files are open"


@pytest.mark.usefixtures("no_session_of_before")
def test_a_client_is_told_that_there_are_too_many(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    with limited(64) as daemon:
        for name, value in daemon.environment.items():
            monkeypatch.setenv(name, value)
        clients = [Connection(daemon, context) for _ in range(daemon_places(64))]
        with pytest.raises(DaemonBusy, match=f"too many clients: {len(clients)} are connected"):
            Session(autostart=False)
        assert isinstance(clients[0].build(request()), Built)
        clients.pop().close()
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with contextlib.suppress(DaemonBusy), Session(autostart=False) as session:
                assert isinstance(session.welcome, Welcome)
                return
        pytest.fail("a place that became free was not given away")


@pytest.mark.slow
def test_the_limit_is_raised_and_builds_have_the_old_one(context: Context) -> None:
    """A compiler that calls select() fails with more than 1,024."""
    soft, hard = 400, 500
    with limited(hard, soft) as daemon:
        assert psutil.Process(daemon.pid).rlimit(psutil.RLIMIT_NOFILE) == (hard, hard)
        compiler = daemon.folder / "c++"
        compiler.write_text(
            f'#!/bin/sh\n[ "$1" != -MD ] || ulimit -Sn > {daemon.folder}/limit\nexec g++ "$@"\n'
        )
        compiler.chmod(0o700)
        environment = {"PATH": os.environ["PATH"], "CXX": str(compiler)}
        assert isinstance(
            Connection(daemon, context).build(request(environment=environment)), Built
        )
        assert (daemon.folder / "limit").read_text() == f"{soft}\n"


@pytest.mark.slow
def test_who_never_says_hello_goes_after_a_while(
    fresh_daemon: Callable[..., Daemon], context: Context
) -> None:
    """Also who has greeted as ZeroMQ does; who has said hello stays."""
    daemon = fresh_daemon()
    client = Connection(daemon, context)
    for one in (*raw(daemon, 1), *raw(daemon, 1, greeting=zmtp.GREETING)):
        with one:
            one.settimeout(door.GREETING_SECONDS + 10)
            while one.recv(1000):
                pass
    assert isinstance(client.build(request()), Built)


def test_the_last_words_of_a_client_are_heard(fresh_daemon: Callable[..., Daemon]) -> None:
    """It goes without reading what it was told: what it said before is in the socket."""
    daemon = fresh_daemon()
    ready = zmtp.frame(b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER", 4)
    said = [
        protocol.Hello([protocol.PROTOCOL], __version__, os.getpid()),
        *map(protocol.Status, range(50)),
    ]
    said.append(protocol.Fallback("last words"))
    (one,) = raw(daemon, 1, greeting=zmtp.GREETING + ready)
    one.sendall(
        b"".join(zmtp.message([protocol.MAGIC, protocol.encode(message)]) for message in said)
    )
    one.close()
    deadline = time.monotonic() + 20
    while not (heard := daemon.status()["requests"]["fallbacks"]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert heard == {"last words": 1}

"""What a service manager sees of the daemon: the notify protocol, settings read again, a socket
handed over.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from tests.support.calls import Connection, request
from tests.support.daemons import Daemon
from warmcc.protocol import Built, Status


class Manager:
    """The listening end of the notify protocol."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(20)
        self.told: list[str] = []

    def wait_for(self, line: str) -> None:
        """Read until something tells ``line`` (or begins with it)."""
        while True:
            lines = self._socket.recv(4096).decode().splitlines()
            self.told += lines
            if any(one.startswith(line) for one in lines):
                return

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def managed() -> Iterator[tuple[Daemon, Manager]]:
    daemon = Daemon(store_size=None)
    manager = Manager(daemon.folder / "notify")
    daemon.environment |= {
        "NOTIFY_SOCKET": str(daemon.folder / "notify"),
        "WATCHDOG_USEC": "1000000",
    }
    try:
        yield daemon.start(), manager
        daemon.stop()
    finally:
        daemon.discard()
        manager.close()


def test_the_notify_protocol_from_start_to_end(
    managed: tuple[Daemon, Manager], context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    daemon, manager = managed
    manager.wait_for("READY=1")
    manager.wait_for("STATUS=warm; 0 building; 0 requests, 0 hits")
    assert isinstance(Connection(daemon, context).build(request()), Built)
    manager.wait_for("STATUS=warm; 0 building; 1 requests")
    manager.wait_for("WATCHDOG=1")
    manager.wait_for("WATCHDOG=1")
    assert daemon.process is not None
    daemon.process.terminate()
    manager.wait_for("STOPPING=1")


def test_sighup_reads_the_settings_again(managed: tuple[Daemon, Manager]) -> None:
    daemon, manager = managed
    manager.wait_for("READY=1")
    file = daemon.folder / "config.toml"
    file.write_text('store_size = "77MiB"\njobs = 1\nbinding = false\n')
    os.kill(daemon.pid, signal.SIGHUP)
    manager.wait_for("RELOADING=1")
    manager.wait_for("READY=1")
    status = daemon.status()
    assert status["store"]["limit"] == 77 << 20
    assert status["permits"]["limit"] == 1
    assert status["config"]["binding"] is True, (
        "what is built in cannot change under a running daemon"
    )
    assert "restart required to apply: binding" in daemon.log()

    file.write_text("jobs = 'many'\n")
    os.kill(daemon.pid, signal.SIGHUP)
    manager.wait_for("RELOADING=1")
    manager.wait_for("READY=1")
    assert "config.toml: jobs = 'many'" in daemon.log()
    assert daemon.status()["permits"]["limit"] == 1


def test_a_socket_that_the_service_manager_opened() -> None:
    """The first client is served by the daemon that its own connection starts; the socket stays
    when that ends.
    """
    daemon = Daemon()
    daemon.runtime_dir.mkdir(mode=0o700)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(daemon.socket))
    listener.listen(16)
    start = (
        "import os, sys; os.dup2(int(sys.argv[1]), 3); "
        "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1');"
        "os.execv(sys.executable, [sys.executable, '-m', 'warmcc.daemon'])"
    )
    try:
        for _ in range(2):
            environment = {
                **os.environ,
                **daemon.environment,
                "WARMCC_PREWARM": "",
                "WARMCC_PREWARM_CUDA": "0",
            }
            daemon.process = subprocess.Popen(
                [sys.executable, "-c", start, str(listener.fileno())],
                pass_fds=[listener.fileno()],
                env=environment,
                stderr=subprocess.PIPE,
            )
            assert daemon.ask(Status(1), seconds=20).data["pid"] == daemon.pid
            before = time.monotonic()
            daemon.stop()
            assert time.monotonic() - before < 15
            assert daemon.process.stderr is not None
            daemon.process.stderr.close()
            assert daemon.socket.is_socket(), "the socket is the service manager's"
    finally:
        daemon.discard()
        listener.close()

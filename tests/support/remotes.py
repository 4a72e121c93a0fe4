"""Real servers for remote stores, and what can go wrong with them: a proxy that cuts, flips, hangs.

Servers are in processes or threads of their own, on ports of the loopback network that were free.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_START_SECONDS = 30.0
_BLOCK = 1 << 16


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextlib.contextmanager
def _process(command: list[str], port: int, folder: Path) -> Iterator[None]:
    """A server that runs, and answers connections at a port."""
    with open(folder / "server.log", "ab") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            said = (folder / "server.log").read_text(errors="replace")
            assert process.poll() is None and time.monotonic() < deadline, said
            time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()


_WEBDAV = """
import sys
from cheroot import wsgi
from wsgidav.wsgidav_app import WsgiDAVApp

folder, port = sys.argv[1:]
users = {"*": {"someone": {"password": "pass/word"}}}
app = WsgiDAVApp({
    "provider_mapping": {"/": folder}, "simple_dc": {"user_mapping": users}, "verbose": 1,
    "http_authenticator": {
        "accept_basic": True, "accept_digest": False, "default_to_digest": False,
    },
    "logging": {"enable": False}, "property_manager": False, "lock_storage": True,
})
wsgi.Server(("127.0.0.1", int(port)), app).start()
"""
USER = "someone:pass%2Fword"


@contextlib.contextmanager
def webdav(folder: Path) -> Iterator[int]:
    """A WebDAV server of the folder ``files``, for ``USER``; its port."""
    pytest.importorskip("wsgidav", reason="wsgidav is not installed")
    pytest.importorskip("cheroot", reason="cheroot is not installed")
    (folder / "files").mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [sys.executable, "-c", _WEBDAV, str(folder / "files"), str(port)]
    with _process(command, port, folder):
        yield port


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[int]:
    """A Redis server that needs the password ``secret``; its port."""
    if (program := shutil.which("redis-server")) is None:
        pytest.skip("redis-server is not installed (apt-get install redis-server)")
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [
        program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--requirepass", "secret"
    ]  # fmt: skip
    with _process(command, port, folder):
        yield port


@contextlib.contextmanager
def s3(folder: Path) -> Iterator[int]:
    """An S3-compatible server (moto); its port."""
    pytest.importorskip("s3fs", reason="s3fs is not installed (pip install 'warmcc[remote]')")
    pytest.importorskip("moto.server", reason="moto is not installed (pip install 'moto[server]')")
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with _process(command, port, folder):
        yield port


class Proxy:
    """Between a client and a server on ``target`` (0: there is none, and ``says`` is its answer to
    anything, again and again).

    Of what the server answers on each connection: the first ``cut`` bytes, and the end of the
    connection; the first ``hang`` bytes, and nothing more; all, with the bit at byte ``flip``
    turned; ``drip`` bytes each tenth of a second.
    """

    def __init__(
        self, target: int = 0, *, cut: int | None = None, hang: int | None = None,
        flip: int | None = None, drip: int = 0, says: bytes = b"",
    ) -> None:  # fmt: skip
        self._target = target
        self._cut, self._hang, self._flip, self._drip = cut, hang, flip, drip
        self._says = says
        self._ended = threading.Event()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0

    def __enter__(self) -> Proxy:
        self._start(self._listen)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5.0)
        self._listener.close()

    def _listen(self) -> None:
        while not self._ended.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._start(self._serve, client)

    def _start(self, work: Callable[..., None], *arguments: Any) -> None:
        self._threads.append(threading.Thread(target=work, args=arguments, daemon=True))
        self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        self._open.append(client)
        with client, contextlib.suppress(OSError):
            if not self._target:
                client.recv(_BLOCK)
                self._answer(client, lambda: self._says)
                return
            with socket.create_connection(("127.0.0.1", self._target)) as server:
                self._open.append(server)
                self._start(_pump, client, server)
                self._answer(client, lambda: server.recv(_BLOCK))

    def _answer(self, client: socket.socket, read: Callable[[], bytes]) -> None:
        sent = 0
        while data := read():
            if self._flip is not None and sent <= self._flip < sent + len(data):
                place = self._flip - sent
                data = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
            limit = self._cut if self._cut is not None else self._hang
            whole = limit is None or sent + len(data) <= limit
            self._send(client, data if whole else data[: (limit or 0) - sent])
            sent += len(data)
            if not whole:
                if self._hang is not None:
                    self._ended.wait()
                break
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def _send(self, client: socket.socket, data: bytes) -> None:
        step = self._drip or len(data) or 1
        for start in range(0, len(data), step):
            client.sendall(data[start : start + step])
            if self._drip:
                self._ended.wait(0.1)


def _pump(client: socket.socket, server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := client.recv(_BLOCK):
            server.sendall(data)
        server.shutdown(socket.SHUT_WR)

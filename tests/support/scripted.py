"""A daemon whose answers are written by a test: a real ROUTER socket that speaks the real protocol,
or garbage.

For the client's way with daemons that real ones should never be: silent, dying, refusing, slow,
babbling.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import zmq

from tests.support import ROOT
from warmcc import protocol
from warmcc.version import __version__

# What a script gives for a message: messages to send, raw frames to send, or seconds to wait.
Script = Callable[[Any], Iterator[Any]]


def welcome() -> protocol.Welcome:
    capabilities = ["load", "load_inline", "stock"]
    return protocol.Welcome(protocol.PROTOCOL, __version__, os.getpid(), capabilities)


class ScriptedDaemon:
    """Serves ``<folder>/daemon.sock`` in a thread, one message at a time. ``received`` holds what
    came.
    """

    def __init__(self, folder: Path, script: Script, *, greets: bool = True) -> None:
        self.received: list[Any] = []
        self.peers: set[bytes] = set()
        self._script = script
        self._greets = greets
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.sndhwm = 0
        self._socket.bind(f"ipc://{folder}/daemon.sock")
        self._ending = threading.Event()
        self._news: queue.Queue[Any] = queue.Queue()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._ending.is_set():
            if not self._socket.poll(10):
                continue
            identity, _magic, body = self._socket.recv_multipart()
            message = protocol.decode_client_message(body)
            self.peers.add(identity)
            self.received.append(message)
            self._news.put(message)
            if self._greets and isinstance(message, protocol.Hello):
                self._send(identity, welcome())
                continue
            for answer in self._script(message):
                if isinstance(answer, (int, float)):
                    self._ending.wait(answer)
                else:
                    self._send(identity, answer)

    def _send(self, identity: bytes, answer: Any) -> None:
        frames = answer if isinstance(answer, list) else [protocol.MAGIC, protocol.encode(answer)]
        self._socket.send_multipart([identity, *frames])

    def wait_for(self, kind: type, seconds: float = 10.0) -> Any:
        """The next message of a kind. Raises queue.Empty."""
        deadline = time.monotonic() + seconds
        while True:
            message = self._news.get(timeout=max(0.0, deadline - time.monotonic()))
            if isinstance(message, kind):
                return message

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
        self._socket.close(0)
        self._context.term()


@contextlib.contextmanager
def serving(script: Script, patch: Any, *, greets: bool = True) -> Iterator[ScriptedDaemon]:
    """A scripted daemon in a private folder, to which ``patch`` (pytest's monkeypatch) leads the
    client.
    """
    with tempfile.TemporaryDirectory(prefix="wcs-", dir="/tmp") as folder:
        patch.setenv("WARMCC_RUNTIME_DIR", folder)
        daemon = ScriptedDaemon(Path(folder), script, greets=greets)
        try:
            yield daemon
        finally:
            daemon.close()


def silent(_message: Any) -> Iterator[Any]:
    yield from ()


# ---------------------------------------------------------------------- one that can be killed


_CHILD = """
import sys, time
from pathlib import Path
from tests.support.scripted import ScriptedDaemon, silent
ScriptedDaemon(Path(sys.argv[1]), silent)
print("ready", flush=True)
"""


def in_a_process(folder: str) -> subprocess.Popen[str]:
    """A daemon that greets and then says nothing, in a process of its own that waits to be
    killed.
    """
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, folder], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def reports(message: Any) -> Iterator[Any]:
    yield protocol.Report(message.id, {"you asked": type(message).__name__})


def declines(message: Any) -> Iterator[Any]:
    if isinstance(message, protocol.Build):
        yield protocol.Declined(message.id, f"a test, {message.request.name}", True)

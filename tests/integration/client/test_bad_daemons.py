"""A call when the daemon misbehaves, is slow or cannot write: an error or stock, never a wrong
module.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import zmq

from tests.support.daemons import Daemon
from tests.support.users import tiny
from warmcc import protocol
from warmcc.client import notices
from warmcc.client.connection import session
from warmcc.errors import (
    DaemonError,
    DaemonTimeout,
    VersionMismatch,
    WarmccWarning,
)


class Scripted(threading.Thread):
    """A daemon that misbehaves as told: it answers each message by what ``script`` gives."""

    def __init__(self, runtime: Path, script: Callable[[Any], list[bytes]]) -> None:
        super().__init__(daemon=True)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.bind(f"ipc://{runtime}/daemon.sock")
        self._script = script
        self._ended = False

    def run(self) -> None:
        while not self._ended:
            if self._socket.poll(20):
                identity, _, body = self._socket.recv_multipart()
                for answer in self._script(protocol.decode_client_message(body)):
                    self._socket.send_multipart([identity, protocol.MAGIC, answer])
        self._context.destroy(linger=0)

    def end(self) -> None:
        self._ended = True
        self.join()


def welcome_then(answers: list[bytes]) -> Callable[[Any], list[bytes]]:
    greeting = protocol.encode(protocol.Welcome(1, "0", 1, ["load", "load_inline"]))
    return lambda message: [greeting] if isinstance(message, protocol.Hello) else answers


MISBEHAVIOUR: dict[str, tuple[Callable[[Any], list[bytes]], type[DaemonError]]] = {
    "does not greet": (lambda _: [], DaemonTimeout),
    "greets with nonsense": (lambda _: [b"\xc1"], DaemonError),
    "speaks another version": (
        lambda _: [protocol.encode(protocol.Refused([9], "9.0", "too old"))],
        VersionMismatch,
    ),
    "is too old for this call": (
        lambda _: [protocol.encode(protocol.Welcome(1, "0", 1, ["load"]))],
        VersionMismatch,
    ),
    "falls silent": (welcome_then([]), DaemonTimeout),
    "answers with nonsense": (welcome_then([b"\x01"]), DaemonError),
    "answers something else": (
        welcome_then([protocol.encode(protocol.Report(1, {}))]),
        DaemonError,
    ),
}


@pytest.mark.parametrize("how", MISBEHAVIOUR)
def test_a_daemon_that(how: str, nobody: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, kind = MISBEHAVIOUR[how]
    monkeypatch.setenv("WARMCC_TIMEOUT", "0.5")
    daemon = Scripted(nobody, script)
    daemon.start()
    try:
        monkeypatch.setenv("WARMCC_FALLBACK", "0")
        name = how.replace(" ", "_")
        with pytest.raises(kind):
            tiny(name)
        monkeypatch.delenv("WARMCC_FALLBACK")
        with pytest.warns(WarmccWarning):
            assert tiny(name).answer() == 42
    finally:
        session.forget()
        daemon.end()


def test_a_slow_daemon_that_shows_life_is_waited_for(
    nobody: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARMCC_TIMEOUT", "0.4")
    failed = protocol.encode(protocol.Failed(1, "ValueError", "at last"))
    alive = protocol.encode(protocol.Progress(1, "compiling", 1.0))

    def script(message: Any) -> list[bytes]:
        if isinstance(message, protocol.Hello):
            return [protocol.encode(protocol.Welcome(1, "0", 1, ["load", "load_inline"]))]
        time.sleep(0.3)
        return [alive, failed]

    daemon = Scripted(nobody, script)
    daemon.start()
    with pytest.raises(ValueError, match="at last"):
        tiny("slow")
    session.forget()
    daemon.end()


def test_a_folder_that_others_may_enter_is_not_trusted(nobody: Path) -> None:
    nobody.chmod(0o755)
    with pytest.warns(WarmccWarning, match="not private to you"):
        assert tiny("untrusted").answer() == 42


def test_a_daemon_is_started_when_none_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Daemon()
    for name, value in {**one.environment, "WARMCC_AUTOSTART": "1", "WARMCC_PREWARM": ""}.items():
        monkeypatch.setenv(name, value)
    session.forget()
    try:
        assert tiny("started", 9).answer() == 9
        with session.Session(autostart=False) as connection:
            pid = connection.welcome.pid
            connection.ask(protocol.Stop)
        psutil.Process(pid).wait(10) if psutil.pid_exists(pid) else None
    finally:
        session.forget()
        one.discard()


@pytest.mark.slow
def test_a_daemon_that_cannot_write_hands_over_to_stock(
    fresh_daemon: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A full disk, by a limit on the size of files: the extension is built by stock, nothing
    half-written is kept.
    """
    daemon = fresh_daemon(pch=False, ccache=False)
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("WARMCC_FALLBACK")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    session.forget()
    notices._given.clear()
    assert tiny("before").answer() == 42
    own = psutil.Process(daemon.pid)
    limits = own.rlimit(psutil.RLIMIT_FSIZE)
    own.rlimit(psutil.RLIMIT_FSIZE, (2000, limits[1]))
    with pytest.warns(WarmccWarning, match="could not build"):
        assert tiny("full").answer() == 42
    own.rlimit(psutil.RLIMIT_FSIZE, limits)
    assert list((daemon.cache_dir / "store" / "staging").iterdir()) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tiny("after").answer() == 42
    session.forget()

"""One connection to the daemon: connect, greet, ask, and give up in time.

ZeroMQ's ``connect`` succeeds whether or not anybody listens, and its sockets reconnect in silence. A session therefore
greets before anything else, watches its connection with a socket monitor, and treats a lost connection as a lost
daemon: what was asked on it is not coming.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import zmq
from zmq.utils.monitor import recv_monitor_message

from warmcc import paths, protocol
from warmcc.client import autostart as starter
from warmcc.errors import DaemonError, DaemonTimeout, DaemonUnavailable, VersionMismatch, WarmccError
from warmcc.protocol import Build, Built, Cancel, Declined, Failed, Output, Progress, Refused, Report, Welcome
from warmcc.request import Request
from warmcc.version import __version__

GREETING_SECONDS = 2.0  # a daemon that runs answers in milliseconds
START_SECONDS = 20.0  # one that starts needs to import its parts from a cold disk
_SILENCE_SECONDS = 15.0

OnProgress = Callable[[Progress], None]
OnOutput = Callable[[str], None]


def silence_limit() -> float:
    """Seconds without a word from the daemon after which it is given up (``WARMCC_TIMEOUT``)."""
    text = os.environ.get("WARMCC_TIMEOUT", "")
    try:
        return float(text) if text else _SILENCE_SECONDS
    except ValueError:
        raise DaemonError(f"WARMCC_TIMEOUT must be a number of seconds, not {text!r}") from None


def check_folder() -> None:
    """The socket's folder must be this user's alone. Raises DaemonUnavailable when there is none, else DaemonError."""
    folder = paths.runtime_dir()
    try:
        found = folder.lstat()
    except FileNotFoundError:
        raise DaemonUnavailable("no daemon runs (start one with: warmcc start)") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise DaemonError(f"{folder} is not a folder of yours alone; remove it, or set WARMCC_RUNTIME_DIR")


class Session:
    """A greeted connection. Not to be shared between threads or across a fork.

    Raises DaemonUnavailable, DaemonTimeout, VersionMismatch (all DaemonError).
    """

    def __init__(self, *, autostart: bool, timeout: float | None = None) -> None:
        self._silence = silence_limit() if timeout is None else timeout
        self._number = 0
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        self._pid = os.getpid()
        try:
            self._open(min(GREETING_SECONDS, self._silence))
        except DaemonUnavailable:
            if not autostart:
                raise
            self._start()

    @property
    def welcome(self) -> Welcome:
        """What the daemon said of itself."""
        return self._welcome

    def usable(self) -> bool:
        """Whether this process may still ask on this connection."""
        return self._pid == os.getpid() and not self._socket.closed and not self._lost()

    # ------------------------------------------------------------------ connecting

    def _open(self, seconds: float) -> None:
        check_folder()
        path = paths.socket_path()
        if not path.exists():
            raise DaemonUnavailable("no daemon runs (start one with: warmcc start)")
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._monitor = self._socket.get_monitor_socket(
            zmq.EVENT_DISCONNECTED | zmq.EVENT_CONNECT_RETRIED | zmq.EVENT_CLOSED
        )
        try:
            self._socket.connect(f"ipc://{path}")
            self._send(protocol.Hello([protocol.PROTOCOL], __version__, os.getpid()))
            answer = self._receive(time.monotonic() + seconds)
        except DaemonTimeout:
            self.close()
            raise DaemonTimeout(f"the daemon does not answer its greeting within {seconds:g} s") from None
        except BaseException:
            self.close()
            raise
        if isinstance(answer, Refused):
            self.close()
            raise VersionMismatch(
                f"this is warmcc {__version__} (protocol {protocol.PROTOCOL}), the daemon is {answer.version} "
                f"(protocols {answer.protocols}): {answer.reason}\nRestart it with: warmcc stop; warmcc start"
            )
        if not isinstance(answer, Welcome):
            self.close()
            raise DaemonError(f"the daemon answers its greeting with {type(answer).__name__}")
        self._welcome = answer

    def _start(self) -> None:
        """Start a daemon, or wait for the one that somebody else is starting."""
        try:
            process = starter.spawn()
        except OSError as error:
            raise DaemonUnavailable(f"no daemon runs, and none can be started: {error}") from error
        deadline = time.monotonic() + START_SECONDS
        while not self._opens():
            if process.poll() not in (None, 0):
                raise DaemonUnavailable(f"the daemon did not start:\n{starter.log_tail()}")
            if time.monotonic() > deadline:
                raise DaemonTimeout(f"the daemon does not come up:\n{starter.log_tail()}")
            time.sleep(0.02)

    def _opens(self) -> bool:
        try:
            self._open(GREETING_SECONDS)
        except (DaemonUnavailable, DaemonTimeout):
            return False
        return True

    def close(self) -> None:
        """Give the connection up; whatever it waited for is cancelled by the daemon."""
        if self._pid != os.getpid():
            return  # the parent's
        with contextlib.suppress(zmq.ZMQError):
            self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(0)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ messages

    def _send(self, message: protocol.ClientMessage) -> None:
        self._socket.send_multipart([protocol.MAGIC, protocol.encode(message)], flags=zmq.NOBLOCK)

    def _lost(self) -> bool:
        """Whether the connection broke (or never came about)."""
        while self._monitor.poll(0):
            recv_monitor_message(self._monitor)
            return True
        return False

    def _receive(self, deadline: float) -> protocol.DaemonMessage:
        """The next message. Raises DaemonTimeout, DaemonUnavailable, DaemonError."""
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._monitor, zmq.POLLIN)
        ready = dict(poller.poll(int(max(0.0, deadline - time.monotonic()) * 1000)))
        if self._socket not in ready:
            if self._monitor in ready:
                raise DaemonUnavailable("the daemon is gone")
            raise DaemonTimeout(f"the daemon has said nothing for {self._silence:g} s")
        frames = self._socket.recv_multipart()
        try:
            if len(frames) != 2 or frames[0] != protocol.MAGIC:
                raise DaemonError("the daemon sent something that is no message")
            return protocol.decode_daemon_message(frames[1])
        except msgspec.MsgspecError as error:
            raise DaemonError(f"the daemon sent something that is no message: {error}") from error

    def _converse(
        self,
        message: Any,
        number: int,
        on_progress: OnProgress | None,
        on_output: OnOutput | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> protocol.DaemonMessage:
        """Send, then receive until the answer to ``number`` comes. An interruption cancels it."""
        try:
            self._send(message)
            if meanwhile is not None:
                meanwhile()
            while True:
                answer = self._receive(time.monotonic() + self._silence)
                if isinstance(answer, Refused):
                    raise DaemonError(f"the daemon refuses the message: {answer.reason}")
                if getattr(answer, "id", None) != number:
                    continue  # an answer to something that was cancelled
                if isinstance(answer, Progress):
                    if on_progress is not None:
                        on_progress(answer)
                elif isinstance(answer, Output):
                    if on_output is not None:
                        on_output(answer.text)
                else:
                    return answer
        except zmq.ZMQError as error:
            raise DaemonUnavailable(f"the connection to the daemon failed: {error}") from error
        except KeyboardInterrupt:
            with contextlib.suppress(zmq.ZMQError):
                self._send(Cancel(number))
            raise

    def build(
        self,
        request: Request,
        *,
        on_progress: OnProgress | None = None,
        on_output: OnOutput | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> Built | Failed | Declined:
        """Have a request built. Blocks for as long as the daemon shows signs of life.

        ``meanwhile`` is called when the request is on its way, to do something useful in the time that it takes.
        """
        self._number += 1
        answer = self._converse(Build(self._number, request), self._number, on_progress, on_output, meanwhile)
        if isinstance(answer, (Built, Failed, Declined)):
            return answer
        raise DaemonError(f"the daemon answers a build with {type(answer).__name__}")

    def ask(self, make: Callable[[int], protocol.ClientMessage], *, on_progress: OnProgress | None = None) -> Report:
        """Send what ``make(id)`` gives (Status, Cache, Stop) and return the report. Raises WarmccError if it failed."""
        self._number += 1
        answer = self._converse(make(self._number), self._number, on_progress)
        if isinstance(answer, Report):
            return answer
        if isinstance(answer, Failed):
            raise WarmccError(answer.message)
        raise DaemonError(f"the daemon answers with {type(answer).__name__}")

    def tell(self, message: protocol.Fallback) -> None:
        """Send something that is not answered."""
        with contextlib.suppress(zmq.ZMQError):
            self._send(message)


_local = threading.local()


def current(*, autostart: bool) -> Session:
    """The connection of this thread, made anew when it was lost or the process was forked."""
    session: Session | None = getattr(_local, "session", None)
    where = (paths.runtime_dir(), os.environ.get("WARMCC_TIMEOUT"))
    if session is not None and (not session.usable() or _local.where != where):
        forget()
        session = None
    if session is None:
        session = Session(autostart=autostart)
        _local.session, _local.where = session, where
    return session


def forget() -> None:
    """Close the connection of this thread."""
    session: Session | None = getattr(_local, "session", None)
    _local.session = None
    if session is not None:
        session.close()

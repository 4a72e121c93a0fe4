"""A connection to the daemon: a ZeroMQ DEALER over a plain Unix socket.
``warmcc/zmtp.py`` has the protocol.

Not to be shared between threads or across a fork; a child of fork may close its copy, which the
parent does not notice. A signal's handler may raise anywhere. A message that was being sent is
finished with the next one; in the middle of receiving, the connection is closed.
"""

from __future__ import annotations

import array
import errno
import os
import select
import socket
import time
from collections import deque

from warmcc import paths, zmtp
from warmcc.errors import DaemonError, DaemonTimeout, DaemonUnavailable

_BLOCK = 1 << 16
_FILES = socket.CMSG_SPACE(2 * array.array("i").itemsize)
_LIMIT = 1 << 40  # the daemon is trusted with the size of its answers
_FULL_SECONDS = 0.02  # between attempts while the daemon's queue of connections is full


class Interrupted(Exception):
    """The answer is no longer wanted."""


class Connection:
    """Connected, and past the protocol's greeting as far as this side is concerned.

    The daemon has ``seconds`` to accept, and ``silence`` seconds to take a message. Raises
    DaemonUnavailable, DaemonTimeout.
    """

    def __init__(self, path: str, seconds: float, silence: float) -> None:
        self._pid = os.getpid()
        self._silence = silence
        self._wire = zmtp.Wire(_LIMIT, b"DEALER")
        self._messages: deque[list[bytes]] = deque()
        # With what of each was sent, piece by piece
        self._unsent: deque[tuple[memoryview, list[int]]] = deque()
        self.descriptors: list[int] = []  # that the daemon has handed over
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            deadline = time.monotonic() + seconds
            self._connect(path, deadline)
            self._answer()
            while not self._wire.ready:
                self._wait(deadline)
        except BaseException:
            self._socket.close()
            raise

    def _connect(self, path: str, deadline: float) -> None:
        self._socket.setblocking(False)
        while (
            error := self._socket.connect_ex(path)
        ) == errno.EAGAIN:  # the daemon's queue is full
            if time.monotonic() > deadline:
                raise DaemonTimeout("the daemon does not accept connections")
            time.sleep(_FULL_SECONDS)
        if error:
            raise DaemonUnavailable(f"the daemon cannot be reached: {os.strerror(error)}")

    def usable(self) -> bool:
        """Whether this process may still send and receive."""
        return self._pid == os.getpid() and self.fileno() >= 0 and not _ready(self, 0, 0.0)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        """The daemon cancels what was asked on it."""
        self._socket.close()
        while self.descriptors:
            os.close(self.descriptors.pop())

    def send(self, frames: list[bytes]) -> None:
        """Raises DaemonUnavailable, also when the daemon does not take the message in time."""
        self._send(zmtp.message(frames))

    def _send(self, data: bytes) -> None:
        """Send ``data`` behind what an interruption has left.
        How much was sent is noted by the same call that sends, so that no signal's handler
        comes in between."""
        if self.fileno() < 0:
            raise DaemonUnavailable("the connection to the daemon was closed")
        self._unsent.append((memoryview(data), []))
        try:
            while self._unsent:
                whole, sent = self._unsent[0]
                while (done := sum(sent)) < len(whole):
                    if not _ready(self, select.POLLOUT, self._silence):
                        raise DaemonUnavailable("the daemon does not accept messages")
                    sent.extend(map(self._socket.send, (whole[done:],), (socket.MSG_NOSIGNAL,)))
                self._unsent.popleft()
        except OSError as error:
            if error.errno is None:
                raise  # not the system's: a signal's handler raised it
            raise DaemonUnavailable(f"the daemon does not accept messages: {error}") from error

    def receive(self, seconds: float, interrupt: int | None = None) -> list[bytes]:
        """The frames of the next message.
        Raises DaemonTimeout, DaemonUnavailable, DaemonError, and Interrupted when the file
        descriptor ``interrupt`` has something to read."""
        deadline = time.monotonic() + seconds
        while not self._messages:
            self._wait(deadline, interrupt)
        return self._messages.popleft()

    def _wait(self, deadline: float, interrupt: int | None = None) -> None:
        """Wait for the daemon, and take what has arrived. Raises as ``receive``."""
        if self.fileno() < 0:
            raise DaemonUnavailable("the connection to the daemon was closed")
        found = _ready(self, select.POLLIN, deadline - time.monotonic(), interrupt)
        if interrupt in found:
            raise Interrupted
        if not found:
            raise DaemonTimeout("no message from the daemon")
        try:
            self._take(*self._receive())
        except BaseException as error:
            self.close()  # what was cut cannot be put together again
            if isinstance(error, OSError) and error.errno is not None:
                raise DaemonUnavailable(f"the connection to the daemon failed: {error}") from error
            raise

    def _receive(self) -> tuple[bytes, list[int]]:
        """What has arrived, and file descriptors that came with it."""
        data, ancillary, _, _ = self._socket.recvmsg(_BLOCK, _FILES, socket.MSG_CMSG_CLOEXEC)
        found = array.array("i")
        for _, _, content in ancillary:
            found.frombytes(content)
        return data, found.tolist()

    def _take(self, data: bytes, descriptors: list[int]) -> None:
        self.descriptors += descriptors
        if not data:
            raise DaemonUnavailable(
                f"the connection to the daemon was lost; its log: {paths.log_path()}"
            )
        try:
            self._messages.extend(self._wire.feed(data))
        except zmtp.Violation as reason:
            raise DaemonError(f"the daemon sent an invalid message: {reason}") from None
        if self._wire.answers:  # to a heartbeat
            self._answer()

    def _answer(self) -> None:
        said, self._wire.answers = bytes(self._wire.answers), bytearray()
        self._send(said)


def _ready(
    connection: Connection, events: int, seconds: float, interrupt: int | None = None
) -> set[int]:
    """Wait for file descriptors to be readable, and return those that are.
    With no ``events``: whether the daemon has closed the connection."""
    poll = select.poll()
    poll.register(connection, events)
    if interrupt is not None:
        poll.register(interrupt, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(max(0.0, seconds) * 1000)}

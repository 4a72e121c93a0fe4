"""The daemon's door: accept who may come in, count them, and give each message to the server.

The daemon accepts by itself, so that no number of connections can take what it needs to work:
``limits`` says how many file descriptors are for clients. Who has not said hello yet has no claim
to a place: when there is none left, whoever has waited longest without a word goes, and after a
while in any case. Who has said hello stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import socket
import stat
import struct
import time
from collections.abc import Callable
from pathlib import Path

from warmcc import zmtp

log = logging.getLogger(__name__)

GREETING_SECONDS = 10.0  # to say hello
_BACKLOG = 4096  # the kernel takes the smaller of this and net.core.somaxconn
_AT_A_TIME = 64  # accepted before those who are connected are heard again
_BREATH_SECONDS = 0.1  # without accepting, when there is no descriptor left
_SWEEP_SECONDS = 1.0  # between looks at who is silent
_HELLO = 1 << 16  # bytes of a message before hello
_BLOCK = 1 << 18
_BEHIND = 64 << 20  # bytes that a client does not take, until it is given up
_FLUSH_SECONDS = 0.5
_RESERVED = 1024  # descriptors that are the daemon's own


def raise_limit() -> int:
    """Let this process have as many open files as it may.
    Gives the limit of before, which is what its builds get: programs that use select() break
    with more than 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft


def places() -> tuple[int, int]:
    """How many connections there may be, and how many of them may have said hello."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        limit = 1 << 20
    every = max(4, limit - min(_RESERVED, limit // 2))
    return every, every - every // 4


class Peer:
    """One connection. ``pid`` is what the kernel says, 0 when it cannot be seen from here."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.socket = connection
        self.pid = pid
        self.came = time.monotonic()
        self.wire = zmtp.Wire(_HELLO)
        self.unsent = bytearray()
        self.last_words = False  # it goes when it has been told what was sent

    def say(self, data: bytes = b"") -> None:
        """Send ``data`` behind what the protocol itself has to answer."""
        self.unsent += self.wire.answers + data
        self.wire.answers.clear()


class Door:
    """Listens on one socket.
    ``hear`` gets each message, ``lost`` who is gone, ``stranger`` is told of another user."""

    def __init__(
        self, message_size: int, hear: Callable[[bytes, list[bytes]], None],
        lost: Callable[[bytes], None], stranger: Callable[[], None],
    ) -> None:  # fmt: skip
        self._message_size = message_size
        self._hear = hear
        self._lost = lost
        self._stranger = stranger
        self._listener: socket.socket | None = None
        self._path: Path | None = None  # to be removed at the end
        self._peers: dict[bytes, Peer] = {}
        # Who has not said hello, in the order in which they came
        self._silent: dict[bytes, None] = {}
        self._number = 0
        self.places, self.clients = places()

    def open(self, path: Path, descriptor: int | None) -> None:
        """Listen for this user alone, or on what the service manager opened.
        The caller holds the lock: the path is taken from anyone. Raises OSError."""
        if descriptor is not None:
            self._listener = socket.socket(fileno=descriptor)
        else:
            path.unlink(missing_ok=True)
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._listener.bind(str(path))
            path.chmod(stat.S_IRUSR | stat.S_IWUSR)
            self._listener.listen(_BACKLOG)
            self._path = path
        self._listener.setblocking(False)
        self._listen()
        self._sweep()

    def pid(self, identity: bytes) -> int:
        peer = self._peers.get(identity)
        return peer.pid if peer is not None else 0

    def welcome(self, identity: bytes) -> None:
        """Somebody said hello, and is a client from now on."""
        self._silent.pop(identity, None)
        self._peers[identity].wire.limit = self._message_size

    # ------------------------------------------------------------------ who comes

    def _listen(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        assert self._listener is not None
        for _ in range(_AT_A_TIME):
            try:
                connection, _address = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except (
                OSError
            ) as error:  # no descriptor, no memory: who waits in the kernel's queue waits on
                log.warning("cannot accept connections for a moment: %s", error)
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._listener)
                loop.call_later(_BREATH_SECONDS, self._listen)
                self._make_room(_SWEEP_SECONDS)  # who has just come is about to say hello
                return
            self._enter(connection)

    def _enter(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        pid, uid, _ = struct.unpack(
            "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        )
        if uid != os.getuid():
            self._stranger()
            connection.close()
            return
        if len(self._peers) >= self.places:
            self._make_room()
        self._number += 1
        identity = self._number.to_bytes(5, "big")
        self._peers[identity] = Peer(connection, pid)
        self._silent[identity] = None
        asyncio.get_running_loop().add_reader(connection, self._readable, identity)
        self._flush(identity)

    def _make_room(self, silent_for: float = 0.0) -> None:
        """Drop who has waited longest without a word, if that is at least so many seconds."""
        oldest = next(iter(self._silent), None)
        if oldest is not None and time.monotonic() - self._peers[oldest].came >= silent_for:
            self.drop(oldest)

    def _sweep(self, due: float = 0.0) -> None:
        """Drop clients that were silent for too long, unless this daemon itself is behind."""
        now = time.monotonic()
        for identity in list(self._silent) if now - due < _SWEEP_SECONDS or not due else []:
            if now - self._peers[identity].came < GREETING_SECONDS:
                break
            self.drop(identity)
        if self._listener is not None:
            asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._sweep, now + _SWEEP_SECONDS)

    # ------------------------------------------------------------------ what they say

    def _readable(self, identity: bytes) -> None:
        peer = self._peers[identity]
        try:
            data = peer.socket.recv(_BLOCK)
            if not data:
                raise ConnectionResetError
            for frames in peer.wire.feed(data):
                self._hear(identity, frames)
                if identity not in self._peers:
                    return
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, zmtp.Violation) as reason:
            log.debug("connection %s ends: %r", identity.hex(), reason)
            self.drop(identity)
            return
        self._flush(identity)

    # ------------------------------------------------------------------ what they are told

    def send(self, identity: bytes, frames: list[bytes], *, last: bool = False) -> bool:
        """Send without waiting; False for who is gone, or too far behind, and then dropped.
        ``last``: it goes, too, when it has been told."""
        peer = self._peers.get(identity)
        if peer is None:
            return False
        peer.say(zmtp.message(frames))
        peer.last_words = peer.last_words or last
        self._flush(identity)
        if len(peer.unsent) > _BEHIND:
            self.drop(identity)
        return last or identity in self._peers

    def hand_over(self, identity: bytes, frames: list[bytes], descriptors: list[int]) -> None:
        """Send a message with file descriptors, unless the client is behind with reading."""
        self._flush(identity)
        peer = self._peers.get(identity)
        if peer is None or peer.unsent:
            return
        data = zmtp.message(frames)
        with contextlib.suppress(OSError):  # not now, or gone
            peer.unsent += data[socket.send_fds(peer.socket, [data], descriptors) :]
            self._flush(identity)

    def _flush(self, identity: bytes) -> None:
        """Write what the kernel takes, and the rest when it takes more."""
        peer = self._peers[identity]
        peer.say()
        writing = bool(peer.unsent)
        try:
            while peer.unsent:
                del peer.unsent[: peer.socket.send(peer.unsent[:_BLOCK])]
        except (BlockingIOError, InterruptedError):
            asyncio.get_running_loop().add_writer(peer.socket, self._flush, identity)
            return
        except OSError:  # it is gone: what it said before that is still heard, and then its end
            peer.unsent.clear()
        if peer.last_words:
            self.drop(identity)
        elif writing:
            asyncio.get_running_loop().remove_writer(peer.socket)

    # ------------------------------------------------------------------ who goes

    def drop(self, identity: bytes) -> None:
        """End a connection; the server hears of it."""
        peer = self._peers.pop(identity, None)
        if peer is None:
            return
        self._silent.pop(identity, None)
        loop = asyncio.get_running_loop()
        loop.remove_reader(peer.socket)
        loop.remove_writer(peer.socket)
        peer.socket.close()
        self._lost(identity)

    async def close(self) -> None:
        """Close all connections once the clients have read their answers, and the socket."""
        deadline = time.monotonic() + _FLUSH_SECONDS
        while any(peer.unsent for peer in self._peers.values()) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        for identity in list(self._peers):
            self.drop(identity)
        if self._path is not None:
            self._path.unlink(missing_ok=True)

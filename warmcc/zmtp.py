"""ZeroMQ's wire protocol, as far as a ROUTER and a DEALER need it on a Unix socket.
ZMTP 3.1, https://rfc.zeromq.org/spec/37: greeting, the NULL mechanism, messages of several frames,
and heartbeats. libzmq speaks with either.

Why not libzmq itself. In the daemon: its ROUTER accepts every connection, and aborts the process
when there is no file descriptor left (``ipc_listener.cpp``); here the daemon itself accepts
(``daemon/serve/door.py``). In the client: importing pyzmq takes longer than everything else that
the first hit of a process does.
"""

from __future__ import annotations

from collections.abc import Iterator

_MORE, _LONG, _COMMAND = 1, 2, 4
_SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
_MECHANISM = b"NULL".ljust(20, b"\0")
# Version 3.1, not as a server, filled up
GREETING = (_SIGNATURE + b"\x03\x01" + _MECHANISM).ljust(64, b"\0")
_HEAD = 9  # bytes that a frame begins with, at most
_FRAMES = 8  # a message of this protocol has two


class Violation(Exception):
    """The peer does not speak ZMTP 3, or sends more than is taken."""


def frame(data: bytes, flags: int = 0) -> bytes:
    """One frame as it is sent."""
    if len(data) < 256:
        return bytes((flags, len(data))) + data
    return bytes((flags | _LONG,)) + len(data).to_bytes(8, "big") + data


def message(frames: list[bytes]) -> bytes:
    """A message as it is sent."""
    return b"".join([*(frame(data, _MORE) for data in frames[:-1]), frame(frames[-1])])


def _ready(kind: bytes) -> bytes:
    """The handshake's command, for a socket of this kind."""
    return frame(b"\x05READY\x0bSocket-Type" + len(kind).to_bytes(4, "big") + kind, _COMMAND)


class Wire:
    """What one peer sends, byte by byte.
    ``answers`` is what the protocol itself has to say to it, as a socket of this ``kind``;
    ``limit`` are the bytes of the largest message that is taken."""

    def __init__(self, limit: int, kind: bytes = b"ROUTER") -> None:
        self.limit = limit
        self._received = bytearray()
        self._frames: list[bytes] = []
        self._greeted = False
        self.ready = False
        self.answers = bytearray(GREETING + _ready(kind))  # NULL lets both be said at once

    def feed(self, data: bytes) -> Iterator[list[bytes]]:
        """The messages that are complete with ``data``. Raises Violation."""
        self._received += data
        if not self._greeted and not self._greet():
            return
        while (taken := self._take()) is not None:
            flags, body = taken
            if flags & _COMMAND:
                self._command(body)
                continue
            if not self.ready:
                raise Violation("a message before the handshake")
            self._frames.append(body)
            if (
                len(self._frames) > _FRAMES
                or sum(map(len, self._frames)) > self.limit + _FRAMES * 256
            ):
                raise Violation("a message that is too large")
            if not flags & _MORE:
                whole, self._frames = self._frames, []
                yield whole

    def _greet(self) -> bool:
        """Whether the greeting is there. An invalid greeting is noticed at its first wrong byte."""
        got = self._received
        begins = _SIGNATURE.startswith(bytes(got[:1])) and _SIGNATURE[9:].startswith(
            bytes(got[9:10])
        )
        if not begins or (len(got) > 10 and got[10] < 3):
            raise Violation("not a greeting of ZMTP 3")
        if len(got) < len(GREETING):
            return False
        if got[12:32] != _MECHANISM:
            raise Violation("another mechanism than NULL")
        del got[: len(GREETING)]
        self._greeted = True
        return True

    def _take(self) -> tuple[int, bytes] | None:
        """The next frame, if all of it is there: its flags and its body."""
        got = self._received
        if len(got) < 2:
            return None
        flags, begin = got[0], _HEAD if got[0] & _LONG else 2
        if flags & ~(_MORE | _LONG | _COMMAND):
            raise Violation("a frame with unknown flags")
        if len(got) < begin:
            return None
        size = int.from_bytes(got[1:begin], "big")
        if size > self.limit:
            raise Violation("a message that is too large")
        if len(got) < begin + size:
            return None
        body = bytes(got[begin : begin + size])
        del got[: begin + size]
        return flags, body

    def _command(self, body: bytes) -> None:
        if body.startswith(b"\x05READY"):
            self.ready = True
        elif body.startswith(b"\x05ERROR"):
            raise Violation("the peer refuses the handshake")
        elif body.startswith(b"\x04PING"):
            # Behind its time to live: what it wants back
            self.answers += frame(b"\x04PONG" + body[7:], _COMMAND)

"""ZeroMQ's wire protocol, byte by byte; that libzmq understands it too is what every other test
shows.
"""

from __future__ import annotations

import pytest

from warmcc import zmtp
from warmcc.zmtp import GREETING, Violation, Wire, frame, message

READY = frame(b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER", 4)
OPENING = GREETING + READY


def said(data: bytes, limit: int = 1 << 20) -> list[list[bytes]]:
    return list(Wire(limit).feed(data))


@pytest.mark.parametrize(
    "frames", [[b"a"], [b"warmcc", b"x" * 255], [b"", b""], [b"a", b"x" * 256], [b"x" * 70_000]]
)
def test_messages_come_out_as_they_went_in(frames: list[bytes]) -> None:
    assert said(OPENING + message(frames) * 2) == [frames, frames]


def test_a_byte_at_a_time() -> None:
    wire = Wire(1000)
    found = [
        one
        for byte in OPENING + message([b"warmcc", b"y" * 300])
        for one in wire.feed(bytes([byte]))
    ]
    assert found == [[b"warmcc", b"y" * 300]]


@pytest.mark.parametrize("size", range(0, 400, 7))
def test_what_is_cut_is_no_message(size: int) -> None:
    whole = OPENING + message([b"warmcc", b"y" * 300])
    assert said(whole[: len(whole) - 1 - size % len(whole)]) == []


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1", b"\0" * 64, b"\xff" + bytes(9), GREETING[:10] + b"\x01",
        GREETING.replace(b"NULL", b"PLAI"), GREETING + message([b"before the handshake"]),
        OPENING + b"\x08\0", OPENING + frame(b"x" * 2000), OPENING + b"\x02" + b"\xff" * 8,
        OPENING + message([b"x"] * 9), OPENING + frame(b"x" * 900, 1) * 6,
        GREETING + frame(b"\x05ERROR\0", 4),
    ],
)  # fmt: skip
def test_what_ends_a_connection(data: bytes) -> None:
    with pytest.raises(Violation):
        said(data, 1000)


def test_what_it_answers() -> None:
    assert Wire(1000, b"DEALER").answers == OPENING
    wire = Wire(1000)
    assert wire.answers == OPENING.replace(b"DEALER", b"ROUTER")
    wire.answers.clear()
    assert list(wire.feed(OPENING)) == []
    assert list(wire.feed(frame(b"\x04PING\0\x0ahello", 4) + frame(b"\x04PONG", 4))) == []
    assert wire.answers == frame(b"\x04PONGhello", zmtp._COMMAND)

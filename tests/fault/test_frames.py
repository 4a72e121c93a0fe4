"""Frames that no client of ours sends: random bytes, cut and changed messages, other versions. The
daemon refuses them, serves the others, and grows by nothing. WARMCC_FRAMES says how many (``make
fault``: 100,000)."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

import msgspec
import psutil
import pytest
import zmq

from tests.support.calls import Connection, request
from tests.support.daemons import Daemon
from warmcc import protocol
from warmcc.protocol import (
    Build,
    Built,
    Cache,
    Cancel,
    Fallback,
    Hello,
    Refused,
    Status,
    Stock,
    Welcome,
)

FRAMES = int(os.environ.get("WARMCC_FRAMES", "10000"))
Context = zmq.Context[zmq.Socket[bytes]]
_MESSAGES = (
    Hello([1], "0", 1), Hello([0, 2, 99], "9.9", 1), Build(1, request()), Cancel(1), Fallback("x"),
    Stock(True), Status(3), Cache(4, "ls"),
)  # fmt: skip


def strange(chance: random.Random) -> list[bytes]:
    """Frames of one message: noise, or one of ours with something wrong."""
    body = bytearray(protocol.encode(chance.choice(_MESSAGES)))
    match chance.randrange(5):
        case 0:
            body = bytearray(chance.randbytes(chance.randrange(200)))
        case 1:
            body = body[: chance.randrange(len(body))]
        case 2:
            for _ in range(chance.randrange(1, 4)):
                body[chance.randrange(len(body))] = chance.randrange(256)
        case 3:
            plain = msgspec.msgpack.decode(bytes(body))
            plain[chance.choice(list(plain))] = chance.choice(
                [None, -1, 1 << 63, "x" * 1000, [], {"a": [1.5]}]
            )
            body = bytearray(msgspec.msgpack.encode(plain))
        case _:
            place = chance.randrange(len(body))
            body[place:place] = chance.randbytes(chance.randrange(1, 20))
    head = protocol.MAGIC if chance.random() < 0.8 else chance.randbytes(chance.randrange(8))
    frames = [head, bytes(body)]
    if chance.random() < 0.1:
        frames.insert(chance.randrange(3), chance.randbytes(3))
    if chance.random() < 0.05:
        frames.pop()
    return [frame for frame in frames if b"stop" not in frame] or [b""]


@pytest.mark.slow
def test_fuzzed_frames(fresh_daemon: Callable[..., Daemon], context: Context) -> None:
    daemon = fresh_daemon(pch=False)
    connection = Connection(daemon, context)
    assert isinstance(connection.build(request()), Built)
    chance = random.Random(int(os.environ.get("WARMCC_SEED", "1")))
    memory = []
    for portion in range(10):
        socket = context.socket(zmq.DEALER)
        socket.linger, socket.rcvhwm = 0, 0
        socket.connect(f"ipc://{daemon.socket}")
        for _ in range(FRAMES // 10):
            socket.send_multipart(strange(chance))
            while socket.poll(0):
                protocol.decode_daemon_message(socket.recv_multipart()[-1])
        if portion % 2:  # one half of them is greeted before it talks nonsense
            socket.send_multipart(
                [protocol.MAGIC, protocol.encode(Hello([protocol.PROTOCOL], "0", os.getpid()))]
            )
        socket.close(0)
        answer = connection.build(request())
        assert isinstance(answer, Built) and answer.outcome == "hit"
        memory.append(psutil.Process(daemon.pid).memory_info().rss)
    deadline = time.monotonic() + 20
    while (status := daemon.status())["flights"] and time.monotonic() < deadline:
        time.sleep(0.2)
    assert status["flights"] == [], "what a lost client had asked for is cancelled"
    assert status["requests"]["malformed"] > FRAMES / 4
    assert memory[-1] < memory[1] * 1.2 + (8 << 20), [size >> 20 for size in memory]
    assert daemon.ask(Cache(1, "verify")).data["damaged"] == 0


def test_versions_of_the_protocol(fresh_daemon: Callable[..., Daemon], context: Context) -> None:
    """An older and a newer client are refused in words that both understand; one that speaks
    several is welcome.
    """
    daemon = fresh_daemon()
    for spoken, welcome in (([0], False), ([2, 3], False), ([], False), ([0, 1, 2], True)):
        socket = context.socket(zmq.DEALER)
        socket.connect(f"ipc://{daemon.socket}")
        newer = {
            "type": "hello",
            "protocols": spoken,
            "version": "9.9",
            "pid": os.getpid(),
            "colour": "red",
        }
        socket.send_multipart([protocol.MAGIC, msgspec.msgpack.encode(newer)])
        assert socket.poll(5000)
        answer = protocol.decode_daemon_message(socket.recv_multipart()[1])
        assert isinstance(answer, Welcome if welcome else Refused)
        if isinstance(answer, Refused):
            assert answer.protocols == [protocol.PROTOCOL]
            assert f"speaks protocol {protocol.PROTOCOL}" in answer.reason
        socket.close(0)


def test_a_second_daemon_leaves_the_first_alone(
    fresh_daemon: Callable[..., Daemon], context: Context
) -> None:
    import subprocess
    import sys

    daemon = fresh_daemon()
    connection = Connection(daemon, context)
    second = subprocess.run(
        [sys.executable, "-m", "warmcc.daemon"],
        env={**os.environ, **daemon.environment},
        capture_output=True,
        text=True,
    )
    assert (
        second.returncode,
        "another daemon of this user is already running" in second.stderr,
    ) == (0, True)
    assert isinstance(connection.build(request()), Built)

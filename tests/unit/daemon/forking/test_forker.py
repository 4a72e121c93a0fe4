"""Processes that fork for each job: real ones, of a few lines."""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from warmcc.daemon.forking import forker
from warmcc.daemon.forking.forker import Forker, Forkers

_ECHO = """
import os, socket, struct, sys
control = socket.socket(fileno=0)
control.sendall(b'{"ready": true}')
while True:
    message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
    if not message:
        break
    with socket.socket(fileno=descriptors[0]) as job:
        size, = struct.unpack("!I", job.recv(4, socket.MSG_WAITALL))
        data = job.recv(size, socket.MSG_WAITALL)
        if b"die" in data:
            os._exit(3)
        job.sendall(struct.pack("!I", size) + data)
"""


def in_a_loop(test: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **named: Any) -> None:
        asyncio.run(test(*args, **named))

    return run


def start(text: str = _ECHO, seconds: float = 30.0) -> Coroutine[None, None, Forker]:
    return forker.start([sys.executable, "-I", "-S", "-c", text], forker.inherited(), seconds)


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


async def ask(one: Forker, job: dict[str, Any]) -> dict[str, Any]:
    async with one.asked(job) as reader:
        return await forker.receive(reader)


@in_a_loop
async def test_it_is_started_asked_and_ended() -> None:
    one = await start()
    assert one.said == {"ready": True}
    long = {"text": "x" * 3_000_000}
    assert await asyncio.gather(*(ask(one, job) for job in ({"a": 1}, long))) == [{"a": 1}, long]
    assert one.jobs == 2
    await one.end()
    assert not is_there(one.process.pid)


@in_a_loop
async def test_one_that_dies_says_so() -> None:
    one = await start()
    before = open_files()
    with pytest.raises(forker.FAILURES):
        await ask(one, {"die": 1})
    with pytest.raises(forker.FAILURES):
        await ask(one, {"late": 1})
    assert open_files() == before
    await one.end()


@pytest.mark.parametrize(
    ("text", "seconds", "error"),
    [
        ("pass", 30.0, EOFError),
        ("import time; time.sleep(60)", 0.5, asyncio.TimeoutError),
        ("import socket; socket.socket(fileno=0).sendall(b'no JSON')", 30.0, ValueError),
    ],
    ids=["exits", "hangs", "babbles"],
)
@in_a_loop
async def test_nothing_is_left_of_one_that_does_not_start(
    text: str, seconds: float, error: type[Exception]
) -> None:
    before = open_files()
    with pytest.raises(error):
        await start(text, seconds)
    assert open_files() == before
    with pytest.raises(OSError, match="No such file"):
        await forker.start(["/no/such/program"], {}, 1.0)
    assert open_files() == before


@in_a_loop
async def test_those_who_want_the_same_one_share_it() -> None:
    some: Forkers[str] = Forkers()
    first, second = await asyncio.gather(some.get("a", start), some.get("a", start))
    other = await some.get("b", start)
    assert first is second and other is not first
    assert some.ready() == {"a": first, "b": other}
    await some.end("a")
    await some.end("never started")
    assert some.known() == ["b"] and not is_there(first.process.pid)
    await some.close()
    assert not some.known() and not is_there(other.process.pid)


@in_a_loop
async def test_one_that_is_ended_while_it_starts() -> None:
    """Whoever waits for it may try again; whoever gives up leaves it to the others."""
    some: Forkers[str] = Forkers()

    def slowly() -> Coroutine[None, None, Forker]:
        return start("import time; time.sleep(60)")

    waiting = asyncio.create_task(some.get("a", slowly))
    gives_up = asyncio.create_task(some.get("a", slowly))
    await asyncio.sleep(0.2)
    gives_up.cancel()
    await asyncio.wait([gives_up])
    assert gives_up.cancelled() and not waiting.done()
    await some.end("a")
    with pytest.raises(EOFError):
        await waiting
    assert not some.known()


@in_a_loop
async def test_a_start_that_failed_is_tried_again() -> None:
    some: Forkers[str] = Forkers()
    with pytest.raises(EOFError):
        await some.get("a", lambda: start("pass"))
    assert (await some.get("a", start)).said == {"ready": True}
    await some.close()

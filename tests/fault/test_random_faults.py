"""Calls of the daemon fail at random, with precompiled headers and ccache on, while some clients
build, ask and look.

Whatever fails, each client has an answer: the right result, or a reason. Afterwards the same
requests are served, what is in the store is whole, and nothing is left behind. WARMCC_FAULTS=all
injects thousands; WARMCC_SEED says which.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import zmq

from tests.support.calls import Connection, request
from tests.support.daemons import Daemon
from tests.support.fault.injecting import Injector, counted
from warmcc.paths import CACHE_NAMES
from warmcc.protocol import Built, Cache, Declined, Failed, Report, Status
from warmcc.request import Request

ALL = os.environ.get("WARMCC_FAULTS") == "all"
ROUNDS = int(os.environ.get("WARMCC_ROUNDS", "250" if ALL else "3"))
HITS = 10  # further requests of each round for what was built before
SEED = int(os.environ.get("WARMCC_SEED", "20261123"))
KINDS = (
    "write", "fsync", "rename", "open", "read", "mkdir", "unlink", "fork", "exec", "thread", "pipe",
    "accept", "connect",
)  # fmt: skip
TEXTS = {os.strerror(number) for number in range(1, 134)} | {"can't start new thread"}
Context = zmq.Context[zmq.Socket[bytes]]


class Faulty:
    """A daemon whose calls can be made to fail, and what is asked of it."""

    def __init__(self, daemon: Daemon, context: Context) -> None:
        self.daemon = daemon
        self.injector = Injector(daemon.folder, daemon.cache_dir)
        daemon.environment |= self.injector.environment
        self.context = context
        self.met: Counter[str] = Counter()
        self.told: Counter[str] = Counter()
        self._headers = daemon.folder / "headers"
        self._headers.mkdir()
        self.edit(0)
        self.start()

    def start(self) -> None:
        self.daemon.start()
        self.connections = [Connection(self.daemon, self.context) for _ in range(3)]
        self.known = self.unit(0)
        self.right(self.connections[0].build(self.known), 0)
        self.right(
            self.connections[0].build(self.unit(-self.daemon.pid)), -self.daemon.pid
        )  # starts zygote and reaper
        self.files = self.open_files()

    def edit(self, value: int) -> None:
        """Change the header: its precompiled form is made again, when somebody wants it for the
        second time.
        """
        (self._headers / "mine.h").write_text(
            f"#pragma once\ninline int value() {{ return {value}; }}\n"
        )

    def unit(self, number: int) -> Request:
        """A library that holds its number; every second one has the header in front."""
        include = "" if number % 2 else "#include <mine.h>\n"
        text = f'{include}extern "C" const char* marker() {{ return "marker-{number}-"; }}\n'
        return request(
            cpp_sources=[text], extra_include_paths=[str(self._headers)], is_python_module=False
        )

    @staticmethod
    def right(answer: Any, number: int) -> None:
        assert isinstance(answer, Built), answer
        assert f"marker-{number}-".encode() in Path(answer.path).read_bytes(), answer

    def check(self, answer: Any, number: int) -> str:
        """How a request ended; raises AssertionError when it is neither right nor has a reason."""
        if isinstance(answer, Built):
            self.right(answer, number)
            return "right"
        assert isinstance(answer, Declined | Failed), answer
        reason = answer.reason if isinstance(answer, Declined) else answer.message
        assert any(text in reason for text in TEXTS), answer
        return type(answer).__name__.lower()

    def trouble(self, numbers: list[int]) -> None:
        """Ask for everything at once while calls fail."""
        first, second, third = self.connections
        late = Connection(self.daemon, self.context)
        asked = [(first, numbers[0]), (second, numbers[1]), (late, numbers[0]), (third, 0)]
        for connection, number in asked:
            connection.ask(self.unit(number) if number else self.known)
        for connection, number in asked:
            self.told[self.check(connection.answer(60.0), number)] += 1
        for _ in range(HITS):
            self.told[self.check(late.build(self.known, 60.0), 0)] += 1
        for number, message in enumerate(
            (Status(0), Cache(0, "verify"), Cache(0, "ls"), Cache(0, "prune", 1 << 30))
        ):
            message.id = 1_000_000 + number
            late.send(message)
            answer = late.answer(60.0, message.id)
            assert isinstance(answer, Report | Failed), answer
            self.told["report" if isinstance(answer, Report) else "no report"] += 1
        late.close()

    def sound(self, numbers: list[int]) -> None:
        """The same requests are served now, and nothing is left of what failed."""
        for number in (*numbers, 0, numbers[0] + 2):
            self.right(self.connections[0].build(self.unit(number)), number)
        verified = self.daemon.ask(Cache(1, "verify"))
        assert isinstance(verified, Report) and verified.data["damaged"] == 0, verified
        left = self.left_over()
        deadline = time.monotonic() + 20
        while left and time.monotonic() < deadline:
            time.sleep(0.1)
            left = self.left_over()
        assert not left, left

    def left_over(self) -> list[str]:
        """What should not be there, once the daemon has nothing to do."""
        cache = self.daemon.cache_dir
        (temporary,) = (cache / "tmp").iterdir()
        known = {name.removesuffix("*") for name in CACHE_NAMES} - {"baked.draft", "beside"}
        plans = temporary / "plans"
        places = [cache / "store" / "staging", temporary, *([plans] if plans.is_dir() else [])]
        found = [str(path) for place in places for path in place.iterdir() if path != plans]
        found += [name for name in os.listdir(cache) if name not in known]
        found += [f"open: {path}" for path in (self.open_files() - self.files).elements()]
        programs = ("warmcc.daemon", "zygote_main.py", "reaper.py")
        for one in psutil.Process(self.daemon.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                zombie = one.status() == psutil.STATUS_ZOMBIE
                line = f"zombie {one.pid}" if zombie else " ".join(one.cmdline())
                found += [] if any(program in line for program in programs) else [line]
        return found

    def open_files(self) -> Counter[str]:
        """What the daemon has open, by its kind or path."""
        folder = f"/proc/{self.daemon.pid}/fd"
        found: Counter[str] = Counter()
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                found[os.readlink(f"{folder}/{name}").partition(":[")[0]] += 1
        return found


@pytest.fixture
def faulty(context: Context) -> Iterator[Faulty]:
    daemon = Daemon(pch=True, ccache=True)
    try:
        one = Faulty(daemon, context)
        yield one
        daemon.stop()
        one.injector.close()
    finally:
        daemon.discard()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_random_faults(faulty: Faulty) -> None:
    for turn in range(ROUNDS):
        chance = random.Random(SEED + turn)
        numbers = [10 * turn + 2, 10 * turn + 3]
        if turn % 10 == 9:
            faulty.edit(turn)
        faulty.injector.arm_random(KINDS, SEED + turn, chance.choice((0.01, 0.05, 0.2)))
        try:
            faulty.trouble(numbers)
            faulty.met.update(faulty.injector.disarm()[1])
            faulty.sound(numbers)
            assert faulty.injector.strays == 0
        except BaseException:
            print(f"WARMCC_SEED={SEED + turn}: {faulty.told}\n{faulty.daemon.log()[-8000:]}")
            raise
    print(f"\ndaemon: {counted(faulty.met)} faults; answers: {counted(faulty.told)}")
    assert set(faulty.met) <= set(KINDS) and faulty.met.total() > 0


@pytest.mark.slow
def test_no_descriptor_for_another_client(faulty: Faulty) -> None:
    """The daemon waits for a moment, and takes the client then; nothing is lost or left behind."""
    pid = faulty.daemon.pid
    faulty.injector.arm("accept", "EMFILE", 1)
    faulty.daemon.ask(None)
    assert faulty.injector.disarm()[1], "no call was met"
    assert faulty.daemon.running() and faulty.daemon.pid == pid
    faulty.sound([2, 3])

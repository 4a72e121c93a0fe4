"""Calls, and the users' processes that make them."""

from __future__ import annotations

import contextlib
import itertools
import json
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from benchmarks.harness.measuring import Unsound
from benchmarks.harness.world import Side, World

CALL_SECONDS = 900.0  # a call that takes longer is lost
CALLER = Path(__file__).with_name("caller.py")


@dataclass(frozen=True)
class Call:
    """One call. ``check`` is an expression over its result ``module`` (and ``torch``) that is true
    if it is right.
    """

    function: Literal["load", "load_inline"]
    name: str
    arguments: dict[str, Any]
    check: str


_numbers = itertools.count(1001)


def new_number() -> int:
    """A number that no other source of this run holds."""
    return next(_numbers)


def new_toy() -> Call:
    """A C++ toy as users write it, default headers and ``functions=``; no other call of this run
    has its source.
    """
    number = new_number()
    source = f"at::Tensor f(at::Tensor x) {{ return x * {number}; }}"
    check = f"module.f(torch.ones(1)).item() == {number}"
    return Call("load_inline", f"toy_{number}", {"cpp_sources": source, "functions": ["f"]}, check)


@dataclass(frozen=True)
class Answer:
    """When a call started and when its module was there, on the machine's clock
    (``time.perf_counter``). ``error`` is the text of what was raised instead.
    """

    started: float
    ended: float
    error: str = ""

    @property
    def seconds(self) -> float:
        return self.ended - self.started


class Caller:
    """A user's process (``caller.py``) that has torch and the given sides imported. Use as a
    context manager.

    ``environment`` is laid over the world's; None removes a variable.
    """

    def __init__(
        self, world: World, *sides: Side, environment: Mapping[str, str | None] | None = None
    ) -> None:
        self._world = world
        self._asked: list[Call] = []
        self.started = time.perf_counter()
        variables = {**world.environment, **(environment or {})}
        kept = {name: value for name, value in variables.items() if value is not None}
        with open(world.folder / "callers.log", "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(CALLER), *sides], cwd=world.folder, env=kept, bufsize=0,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip

    def __enter__(self) -> Caller:
        self.import_seconds: float = self._line()["import"]
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            kill_family(self._process.pid)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], CALL_SECONDS)[0]:
            raise Unsound(f"a call has not come back within {CALL_SECONDS:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise Unsound(f"a measured process failed:\n{self._world.log_tail('callers.log')}")
        found: dict[str, Any] = json.loads(line)
        return found

    def send(self, side: Side, call: Call) -> None:
        """Let the process make a call, without waiting for it."""
        arguments = {"name": call.name, **call.arguments}
        if side != "warmcc":
            arguments["build_directory"] = str(self._world.build_folder(side, call.name))
        message = {
            "side": side,
            "function": call.function,
            "arguments": arguments,
            "check": call.check,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._asked.append(call)

    def receive(self) -> Answer:
        """The answer to the oldest call that has none yet. Raises Unsound when its module is not
        right, or when there is none.
        """
        answer = self.answer()
        if answer.error:
            raise Unsound(f"{answer.error}\n{self._world.log_tail('callers.log')}")
        return answer

    def answer(self) -> Answer:
        """The same, where an error is an answer, too."""
        found, call = self._line(), self._asked.pop(0)
        if not found["right"] and not found["error"]:
            raise Unsound(f"{call.name} was built, but this is false: {call.check}")
        return Answer(found["started"], found["ended"], found["error"])

    def make(self, side: Side, call: Call) -> float:
        """Make a call and give the seconds that it took."""
        self.send(side, call)
        return self.receive().seconds

    def end(self) -> float:
        """Let the process end by itself; gives the seconds from its start to its end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self._process.wait(CALL_SECONDS) != 0:
            raise Unsound(
                f"a measured process failed at its end:\n{self._world.log_tail('callers.log')}"
            )
        return time.perf_counter() - self.started


def kill_family(pid: int) -> None:
    """Kill a process and what it has started: stock's ninja gives each compiler a process group of
    its own.
    """
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in [*process.children(recursive=True), process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()

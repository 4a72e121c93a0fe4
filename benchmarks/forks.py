"""Tests in forks of one process of pytest, each with another source of a module in its place."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import Any

import pytest

# ---------------------------------------------------------------------- a mutant in place


def put_in_place(source: str, module: ModuleType) -> None:
    """Have a module behave as another source of it, also for those who imported its parts.

    Functions and methods get the code of the new ones; classes stay the same objects; all else is
    new in the module.
    """
    before = dict(vars(module))
    exec(compile(source, module.__file__ or "", "exec"), vars(module))
    for name, old in before.items():
        new = vars(module).get(name)
        if getattr(old, "__module__", None) != module.__name__ or new is old:
            continue
        if isinstance(old, type) and isinstance(new, type):
            for method in vars(old).keys() & vars(new).keys():
                if not _same_code(vars(old)[method], vars(new)[method]):
                    setattr(old, method, vars(new)[method])
            setattr(module, name, old)
        else:
            _same_code(old, new)


def _same_code(old: Any, new: Any) -> bool:
    """Give a function the code of another, where both are functions; False when it cannot be."""
    for inner in ("fget", "__func__", "__wrapped__"):
        if getattr(old, inner, None) is not None and getattr(new, inner, None) is not None:
            return _same_code(getattr(old, inner), getattr(new, inner))
    if isinstance(old, FunctionType) and isinstance(new, FunctionType):
        if old.__code__.co_freevars != new.__code__.co_freevars:
            return False
        old.__code__, old.__defaults__ = new.__code__, new.__defaults__
        old.__kwdefaults__ = new.__kwdefaults__
    return True


def in_a_fork(work: Callable[[], Any], seconds: float) -> Any:
    """What ``work`` gives in a fork; None when it dies or takes too long. Its output is lost."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            nowhere = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(nowhere, descriptor)
            answer = json.dumps(work())
        except BaseException:
            answer = json.dumps({"error": traceback.format_exc()})
        with open(writing, "w") as file:
            file.write(answer)
        os._exit(0)
    os.close(writing)
    said, deadline = b"", time.monotonic() + seconds
    with open(reading, "rb", buffering=0) as file:
        while select.select([file], [], [], max(0.0, deadline - time.monotonic()))[0]:
            if not (block := file.read(1 << 16)):
                break
            said += block
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return json.loads(said) if said else None


# ---------------------------------------------------------------------- tests


class Tests:
    """A plugin of pytest that runs ``work`` when all tests are collected, and not the tests."""

    def __init__(self, work: Callable[[Tests], None]) -> None:
        self._work = work
        self._items: dict[str, pytest.Item] = {}
        self._failed: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("the tests cannot be collected")
        self._items = {item.nodeid: item for item in session.items}
        self._work(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.append(report.nodeid)

    def first_failure(
        self, names: Sequence[str], around: Callable[[pytest.Item], Any] = contextlib.nullcontext
    ) -> str | None:
        """Run tests until one fails; its name. To be called in a fork, once."""
        items = [self._items[name] for name in names]
        for item, following in zip(items, [*items[1:], None], strict=True):
            with around(item):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed:
                return self._failed[0]
        return None

    def measured(self, file: Path, functions: list[tuple[int, int]]) -> dict[str, dict[str, Any]]:
        """Of each test its ``seconds``; where the functions begin that it ``calls``, of those of
        ``file``; and whether it ``forks``, so that it may call others unseen."""

        def work() -> dict[str, Any]:
            watch = _Watch(file, functions)
            return {"failed": self.first_failure(list(self._items), watch), "tests": watch.tests}

        said = in_a_fork(work, 600.0) or {}
        if said.get("failed", said) is not None:
            raise SystemExit(f"the tests fail, or take ten minutes, without a mutant: {said}")
        tests: dict[str, dict[str, Any]] = said["tests"]
        return tests


class _Watch:
    """Notes what happens while a test runs."""

    def __init__(self, file: Path, functions: list[tuple[int, int]]) -> None:
        self._file, self._functions = os.path.realpath(file), functions
        self._files: dict[str, bool] = {}  # whether a name that code bears leads to ``file``
        self._lines: set[int] = set()
        self._forks = 0
        self.tests: dict[str, dict[str, Any]] = {}
        os.register_at_fork(before=self._forked)

    def _forked(self) -> None:
        self._forks += 1

    def _trace(self, frame: FrameType, _event: str, _argument: Any) -> None:
        name = frame.f_code.co_filename
        if name not in self._files:
            self._files[name] = os.path.realpath(name) == self._file
        if self._files[name]:
            self._lines.add(frame.f_code.co_firstlineno)

    @contextlib.contextmanager
    def __call__(self, item: pytest.Item) -> Any:
        self._lines, self._forks, began = set(), 0, time.process_time()
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        yield
        sys.settrace(None)
        places = {place_of(self._functions, line) for line in self._lines}
        self.tests[item.nodeid] = {
            "seconds": time.process_time() - began,
            "calls": sorted(place for place in places if place is not None),
            "forks": self._forks > 0,
        }


def place_of(functions: list[tuple[int, int]], line: int) -> int | None:
    """Where the function begins that a line is in; None for a line of the module itself."""
    return next((first for first, last in functions if first <= line <= last), None)

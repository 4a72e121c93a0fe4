"""Sources of a module put in the place of another, in a fork: what python -m benchmarks.mutation
rests on.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.forks import in_a_fork, place_of, put_in_place

SOURCE = """
import functools
LIMIT = 3

def limited(number, by=1):
    return min(number + by, LIMIT)

@functools.lru_cache(4)
def cached(number):
    return -number

class Thing:
    def __init__(self, value):
        super().__init__()
        self.value = value

    @property
    def double(self):
        return 2 * self.value

    @classmethod
    def of(cls, value):
        return cls(value)
"""


@pytest.fixture
def module(tmp_path: Path) -> Iterator[ModuleType]:
    (tmp_path / "in_place_of.py").write_text(SOURCE)
    sys.path.insert(0, str(tmp_path))
    yield importlib.import_module("in_place_of")
    sys.path.remove(str(tmp_path))
    del sys.modules["in_place_of"]


def test_whoever_holds_a_part_of_the_module_gets_the_change(module: ModuleType) -> None:
    limited, cached, thing, made = module.limited, module.cached, module.Thing, module.Thing(5)
    assert (limited(1), limited(9), cached(2), thing.of(2).double, made.double) == (2, 3, -2, 4, 10)
    changed = SOURCE.replace("LIMIT = 3", "LIMIT = 4").replace("by=1", "by=2")
    changed = changed.replace("return -number", "return number").replace("2 *", "3 *")
    changed = changed.replace("cls(value)", "cls(value + 1)").replace("super().__init__()", "pass")
    put_in_place(changed, module)
    assert (limited(1), limited(9), cached(7), thing.of(2).double, made.double) == (3, 4, 7, 9, 15)
    assert module.Thing is thing and isinstance(made, module.Thing)


def test_a_source_that_cannot_be_imported_is_an_error(module: ModuleType) -> None:
    with pytest.raises(ZeroDivisionError):
        put_in_place(SOURCE.replace("LIMIT = 3", "LIMIT = 3 / 0"), module)


def test_a_fork_gives_what_its_work_gives_and_changes_nothing_here() -> None:
    here: list[int] = []
    assert in_a_fork(lambda: [here.append(1), os.getpid()], 60.0)[1] != os.getpid()
    assert here == []


def test_a_fork_that_fails_dies_or_takes_too_long() -> None:
    assert "ZeroDivisionError" in in_a_fork(lambda: 1 / 0, 60.0)["error"]
    assert in_a_fork(lambda: os._exit(3), 60.0) is None
    began = time.monotonic()
    assert in_a_fork(lambda: time.sleep(60), 0.2) is None
    assert time.monotonic() - began < 30


def test_the_function_that_a_line_is_in() -> None:
    functions = [(3, 5), (8, 8)]
    assert [place_of(functions, line) for line in (2, 3, 5, 6, 8, 9)] == [None, 3, 3, None, 8, None]

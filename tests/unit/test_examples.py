"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from types import ModuleType

import pytest

import benchmarks
import warmcc

# What only runs: a program of its own, or one that asks for a terminal.
PROGRAMS = (
    "__main__",
    "warmcc.daemon.plan.zygote_main",
    "warmcc.daemon.system.reaper",
    "warmcc.client.live.call_worker",
)


def modules(package: ModuleType) -> list[str]:
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return [one.name for one in found if not one.name.endswith(PROGRAMS)]


@pytest.mark.parametrize("name", [*modules(warmcc), *modules(benchmarks)])
def test_examples(name: str) -> None:
    pytest.importorskip("IPython") if name.endswith("notebook") else None
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0

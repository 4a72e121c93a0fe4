"""The examples in the docstrings of a package."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from types import ModuleType

# What only runs: a program of its own, or one that asks for a terminal.
PROGRAMS = (
    "__main__",
    "warmcc.daemon.plan.zygote_main",
    "warmcc.daemon.system.reaper",
    "warmcc.client.live.call_worker",
    "warmcc.client.inductor.at_start",
)


def modules(package: ModuleType) -> list[str]:
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return [one.name for one in found if not one.name.endswith(PROGRAMS)]


def failed(name: str) -> int:
    """How many examples of a module are not true."""
    return doctest.testmod(importlib.import_module(name)).failed

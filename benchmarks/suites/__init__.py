"""One scenario per file.

Each has ``TITLE`` (a row of the table), ``REPEAT`` (samples of each side by default) and
``measure(repeat)``, which gives an ``Outcome``. Its docstring says what is measured, for ``--list``
and for the reader. A new file in this folder is found by itself.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.harness.results import Outcome


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    about: str
    repeat: int
    measure: Callable[[int], Outcome]


def discover() -> dict[str, Scenario]:
    """All scenarios of this folder, by name."""
    found = {}
    for entry in sorted(pkgutil.iter_modules(__path__), key=lambda entry: entry.name):
        module = importlib.import_module(f"{__name__}.{entry.name}")
        about = " ".join((module.__doc__ or "").split())
        found[entry.name] = Scenario(entry.name, module.TITLE, about, module.REPEAT, module.measure)
    return found

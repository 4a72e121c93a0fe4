"""What one flight works on: its units, its staging tree, and what the store has of them already."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from warmcc.daemon import diagnostics, keys
from warmcc.daemon.closure import Closure, Closures, Marker
from warmcc.daemon.store import Result, Store
from warmcc.daemon.toolchain import Toolchain
from warmcc.daemon.zygote.plan import Plan
from warmcc.request import Request


@dataclass
class Unit:
    """One source file on its way to one object. ``text`` is an inline source's, None for a file."""

    source: str
    object: str
    text: str | None
    key: str
    kept: Result | None = None
    closure: Closure | None = None
    pch: Path | None = None


@dataclass
class Work:
    """What one flight works on; lives as long as its staging tree."""

    request: Request
    toolchain: Toolchain
    key: str
    plan: Plan
    tree: Path
    marker: Marker
    units: list[Unit] = field(default_factory=list)
    lines: diagnostics.LineMap = field(default_factory=diagnostics.LineMap)

    @property
    def workdir(self) -> Path | None:
        found = keys.workdir(self.request)
        return Path(found) if found else None

    @property
    def folder(self) -> Path:
        """The directory in which the compilers run, which relative dependencies are relative to."""
        return self.workdir or self.tree


def prepare(
    request: Request, toolchain: Toolchain, key: str, plan: Plan, tree: Path, store: Store, closures: Closures
) -> Work:
    """Take the time, write the inline source into the tree, and link in the objects that the store has."""
    work = Work(request, toolchain, key, plan, tree, Marker.take(tree, request.sources))
    for planned in plan.units:
        name = os.path.basename(planned.source)
        text = plan.sources.get(name) if request.call == "load_inline" else None
        source = planned.source
        if text is not None:
            (tree / name).write_text(text, encoding="utf-8", newline="")
            source = name if work.workdir is None else str(tree / name)
            work.lines = diagnostics.LineMap.of(text, request.cpp_sources)
        identity = keys.unit_key(
            plan.cflags, plan.post_cflags, source if text is None else name, text, request, toolchain
        )
        work.units.append(Unit(source, planned.object, text, identity))
    if len({unit.object for unit in work.units}) == len(work.units):  # else ninja says what is wrong
        for unit in work.units:
            _reuse(unit, tree, store, closures)
    return work


def _reuse(unit: Unit, tree: Path, store: Store, closures: Closures) -> None:
    found = store.find("unit", unit.key, closures)
    if found is not None:
        unit.kept, path = found
        unit.closure = unit.kept.closure
        (tree / unit.object).symlink_to(path)

"""What one flight works on: its staging tree, the ways it may go, and what the store has of their units already."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from warmcc.daemon import diagnostics, keys, ways
from warmcc.daemon.closure import Closures
from warmcc.daemon.marker import Marker
from warmcc.daemon.store import Store
from warmcc.daemon.timeline import Timeline
from warmcc.daemon.toolchain import Toolchain
from warmcc.daemon.toolchain.identity import Linker
from warmcc.daemon.ways import Unit, Way, Ways
from warmcc.daemon.zygote.plan import Plan
from warmcc.request import Request


@dataclass
class Work:
    """What one flight works on; lives as long as its staging tree. ``way`` and ``linker`` are those in use."""

    request: Request
    toolchain: Toolchain
    key: str
    plan: Plan
    tree: Path
    marker: Marker
    ways: Ways
    way: Way
    linker: Linker
    timeline: Timeline
    without_ccache: bool = False
    search_state: str | None = None  # what ccache has to know of the folders that are searched, once it is known
    lines: dict[str, diagnostics.LineMap] = field(default_factory=dict)

    @property
    def units(self) -> list[Unit]:
        """The units of the way in use."""
        return self.way.units

    @property
    def cuda_units(self) -> list[Unit]:
        """The CUDA units that have to be compiled; they are the same in every way."""
        return [unit for unit in self.units if unit.cuda and unit.kept is None]

    @property
    def workdir(self) -> Path | None:
        found = keys.workdir(self.request)
        return Path(found) if found else None

    @property
    def folder(self) -> Path:
        """The directory in which the compilers run, which relative dependencies are relative to."""
        return self.workdir or self.tree

    def environment(self) -> dict[str, str]:
        """What the compilers get: the caller's variables that count, and a temporary folder in the tree."""
        temporary = self.tree / "tmp"
        temporary.mkdir(exist_ok=True)
        return {**keys.build_environment(self.request), "TMPDIR": str(temporary)}


def prepare(
    request: Request, toolchain: Toolchain, key: str, plan: Plan, chosen: Ways, tree: Path, store: Store,
    closures: Closures, timeline: Timeline,
) -> Work:  # fmt: skip
    """Take the time, and look up which objects of which way the store has."""
    marker = Marker.take(tree, request.sources)
    work = Work(request, toolchain, key, plan, tree, marker, chosen, chosen.ways[-1], toolchain.linkers[-1], timeline)
    for unit in work.units:
        if unit.text is not None:  # every way keeps the lines of stock's text
            sources = request.cuda_sources if unit.cuda else request.cpp_sources
            work.lines[unit.source] = diagnostics.LineMap.of(
                unit.text, sources, "cuda_sources" if unit.cuda else "cpp_sources"
            )
    for way in chosen.ways:
        for unit in way.units:
            unit.key = ways.identify(unit, request, plan, toolchain)
        if len({unit.object for unit in way.units}) == len(way.units):  # else ninja says what is wrong
            for unit in way.units:
                if (found := store.find("unit", unit.key, closures)) is not None:
                    unit.kept, path = found
                    unit.closure = unit.kept.closure
                    unit.path = path
                    unit.maker = "".join(unit.kept.meta.get("makers", []))
    return work


def enter(work: Work, way: Way) -> None:
    """Go this way: write its inline sources into the tree, and link in the objects that the store has."""
    work.way = way
    for unit in way.units:
        place = work.tree / unit.object
        if unit.kept is not None or place.is_symlink():
            place.unlink(missing_ok=True)
        if unit.kept is not None and unit.path is not None:
            place.symlink_to(unit.path)
        if unit.text is not None and not unit.cuda:
            (work.tree / unit.source).write_text(unit.text, encoding="utf-8", newline="")

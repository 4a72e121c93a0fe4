"""The state of one flight: its staging tree, its ways, and what the store has already."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from warmcc.daemon.build import diagnostics
from warmcc.daemon.build.timeline import Timeline
from warmcc.daemon.closure.closure import Closures
from warmcc.daemon.closure.marker import Marker
from warmcc.daemon.pch import opening
from warmcc.daemon.pch.opening import HeaderSearch, Opening
from warmcc.daemon.plan import requested, ways
from warmcc.daemon.plan.stock import Plan
from warmcc.daemon.plan.ways import Unit, Way, Ways
from warmcc.daemon.store import Store
from warmcc.daemon.toolchain import Toolchain, cuda
from warmcc.daemon.toolchain.flags import split
from warmcc.daemon.toolchain.identity import Linker
from warmcc.request import Request


@dataclass
class Work:
    """What one flight works on; lives as long as its staging tree.
    ``way`` and ``linker`` are those in use."""

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
    was_killed: bool = False  # a compiler, perhaps for its memory
    # What ccache has to know of the folders that are searched, once it is known
    search_state: str | None = None
    lines: dict[str, diagnostics.LineMap] = field(default_factory=dict)
    follows: bool = True  # whether the daemon may read the headers that a source includes

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
        found = requested.workdir(self.request)
        return Path(found) if found else None

    @property
    def folder(self) -> Path:
        """The directory in which the compilers run, which relative dependencies are relative to."""
        return self.workdir or self.tree

    def environment(self) -> dict[str, str]:
        """The compilers' environment: the caller's variables, and a TMPDIR in the tree."""
        temporary = self.tree / "tmp"
        temporary.mkdir(exist_ok=True)
        return {**requested.build_environment(self.request), "TMPDIR": str(temporary)}


def prepare(
    request: Request, toolchain: Toolchain, key: str, plan: Plan, chosen: Ways, tree: Path,
    store: Store, closures: Closures, timeline: Timeline, *, follows: bool,
) -> Work:  # fmt: skip
    """Take the time, look up the objects that the store has, and the others' openings."""
    marker = Marker.take(tree, request.sources)
    work = Work(
        request, toolchain, key, plan, tree, marker, chosen, chosen.ways[-1], toolchain.linkers[-1],
        timeline,
    )  # fmt: skip
    work.follows = follows
    for unit in work.units:
        if unit.text is not None:  # every way keeps the lines of stock's text
            sources = request.cuda_sources if unit.cuda else request.cpp_sources
            work.lines[unit.source] = diagnostics.LineMap.of(
                unit.text, sources, "cuda_sources" if unit.cuda else "cpp_sources"
            )
    for way in chosen.ways:
        for unit in way.units:
            unit.key = ways.identify(unit, request, plan, toolchain)
        if len({unit.object for unit in way.units}) == len(
            way.units
        ):  # else ninja says what is wrong
            for unit in way.units:
                if (found := store.find("unit", unit.key, closures)) is not None:
                    unit.kept, path = found
                    unit.closure = unit.kept.closure
                    unit.path = path
                    unit.maker = "".join(unit.kept.meta.get("makers", []))
        for unit in way.units:
            if unit.kept is None and not unit.cuda and not unit.exact and not unit.generated:
                begins = opened(work, unit)
                unit.headers, unit.macros, unit.why_none = begins.headers, begins.macros, begins.why
    return work


_CHANGES_HEADERS = ("-D", "-U", "-I", "-i")  # when they came with the compiler's name


def opened(work: Work, unit: Unit) -> Opening:
    """With which headers a unit of the user's begins, as its files are now."""
    request, toolchain, search = work.request, work.toolchain, None
    options = [word for word in toolchain.argv[1:] if word.startswith(_CHANGES_HEADERS)]
    if toolchain.family == "gcc" and work.follows and not options:
        search = HeaderSearch.of(
            split(f"{work.plan.cflags} {work.plan.post_cflags}"), toolchain,
            requested.search_environment(request), requested.home(request),
            cuda.home(request.environment),
        )  # fmt: skip
    if unit.text is not None:
        return opening.of(unit.text, str(work.tree), search)
    return opening.of(opening.head(unit.source), os.path.dirname(unit.source), search)


def enter(work: Work, way: Way) -> None:
    """Go this way: write its inline sources into the tree, and link in the kept objects."""
    work.way = way
    for unit in way.units:
        place = work.tree / unit.object
        if unit.kept is not None or place.is_symlink():
            place.unlink(missing_ok=True)
        if unit.kept is not None and unit.path is not None:
            place.symlink_to(unit.path)
        if unit.text is not None and not unit.cuda:
            (work.tree / unit.source).write_text(unit.text, encoding="utf-8", newline="")


def users_error(work: Work, output: str) -> bool:
    """Whether a compiler complained of the user's own lines, as it would behind stock's text."""
    generated = ("binding.cpp", "casters.cpp", "module.cpp", diagnostics.BINDING)
    said = diagnostics.parse(diagnostics.to_user_lines(output, work.lines.values()))
    errors = [one for one in said if one.severity in ("error", "fatal error") and one.line]
    return any(one.file not in generated for one in errors)

"""The state of one flight: its staging tree, its ways, and what the store has already."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from warmcc.daemon.build import diagnostics
from warmcc.daemon.build.timeline import Timeline
from warmcc.daemon.closure.closure import Closure, Closures
from warmcc.daemon.closure.marker import Marker
from warmcc.daemon.pch import opening
from warmcc.daemon.pch.opening import HeaderSearch, Opening
from warmcc.daemon.pch.pch import Profile
from warmcc.daemon.pch.plugin import sets_rounding
from warmcc.daemon.plan import requested, ways
from warmcc.daemon.plan.stock import Plan
from warmcc.daemon.plan.ways import Unit, Way, Ways
from warmcc.daemon.store import Result, Store
from warmcc.daemon.toolchain import cuda
from warmcc.daemon.toolchain.flags import absolute, optimises, split
from warmcc.daemon.toolchain.identity import Linker, Toolchain
from warmcc.request import Request


@dataclass(frozen=True)
class Found:
    """What is known of a unit before it is compiled.

    key      under which the store keeps its object
    kept     the result that the store has, at ``path``
    opening  the includes that it begins with, as its files are before the build
    """

    key: str
    kept: Result | None = None
    path: Path | None = None
    opening: Opening = field(default_factory=Opening)


@dataclass(frozen=True)
class Text:
    """The ``headers`` behind whose text a unit is compiled, and with which PCH and flags, others
    than its own, it is parsed first."""

    headers: tuple[str, ...]
    prelude: Path
    cflags: str


@dataclass(frozen=True)
class Attempt:
    """The PCH behind which a unit is compiled, if there is one, or the text of headers.

    passed  the unit's macros in front of the PCH's headers, but for those that make no difference
            to them (see ``toolchain/ninja.Compile``)
    """

    pch: Path | None = None
    profile: Profile | None = None
    passed: frozenset[str] | None = None
    text: Text | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the unit is compiled as it stands."""
        return self.pch is None and self.text is None


@dataclass(frozen=True)
class Outcome:
    """What a unit's object depends on, and what made it, if that can lose trust.
    Without a closure the object cannot be kept."""

    closure: Closure | None = None
    maker: str = ""


_PLAIN, _NONE = Attempt(), Outcome()


@dataclass
class Taken:
    """The way that a flight takes now, how its units are compiled, and how they are linked."""

    way: Way
    attempts: dict[Unit, Attempt]
    linker: Linker


@dataclass
class Work:
    """What one flight works on; lives as long as its staging tree."""

    request: Request
    toolchain: Toolchain
    key: str
    plan: Plan
    tree: Path
    marker: Marker
    ways: Ways
    timeline: Timeline
    follows: bool  # whether the daemon may read the headers that a source includes
    lines: dict[str, diagnostics.LineMap]
    found: dict[Unit, Found] = field(default_factory=dict)
    outcomes: dict[Unit, Outcome] = field(default_factory=dict)
    without_ccache: bool = False
    was_killed: bool = False  # a compiler, perhaps for its memory
    from_elsewhere: int = 0  # objects that were taken from another folder
    # What ccache has to know of the folders that are searched, once it is known.
    search_state: str | None = None
    _taken: Taken | None = None

    @property
    def taken(self) -> Taken:
        """The way that was entered last."""
        assert self._taken is not None, "no way was entered yet"
        return self._taken

    @property
    def way(self) -> Way:
        return self.taken.way

    @property
    def units(self) -> list[Unit]:
        """The units of the way in use."""
        return self.way.units

    @property
    def cuda_units(self) -> list[Unit]:
        """The CUDA units that have to be compiled; they are the same in every way."""
        return [unit for unit in self.ways.stock.units if unit.cuda and not self.has(unit)]

    def has(self, unit: Unit) -> bool:
        """Whether the store has a unit's object."""
        return self.found[unit].kept is not None

    def attempt(self, unit: Unit) -> Attempt:
        """How a unit of the way in use is compiled."""
        return self.taken.attempts.get(unit, _PLAIN)

    def outcome(self, unit: Unit) -> Outcome:
        return self.outcomes.get(unit, _NONE)

    @property
    def accelerated(self) -> list[Unit]:
        """The units of the way in use that are compiled behind a PCH."""
        return [unit for unit in self.units if self.attempt(unit).pch is not None]

    def cflags(self, unit: Unit) -> str:
        """The flags of a C++ unit, as they stand in a build.ninja."""
        return self.plan.cflags if unit.cflags is None else unit.cflags

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
        request, toolchain, key, plan, tree, marker, chosen, timeline, follows,
        _lines(request, chosen.stock),
    )  # fmt: skip
    for way in chosen.ways:
        # Where two units make one object, ninja says what is wrong.
        distinct = len({unit.object for unit in way.units}) == len(way.units)
        for unit in way.units:
            found = work.found[unit] = _look_up(work, unit, store if distinct else None, closures)
            if found.kept is not None:
                makers = "".join(found.kept.meta.get("makers", []))
                work.outcomes[unit] = Outcome(found.kept.closure, makers)
    return work


def _lines(request: Request, stock: Way) -> dict[str, diagnostics.LineMap]:
    """Where the user's sources are in those of stock's way, whose lines every way keeps."""
    return {
        unit.source: diagnostics.LineMap.of(
            unit.text, request.cuda_sources if unit.cuda else request.cpp_sources,
            "cuda_sources" if unit.cuda else "cpp_sources",
        )
        for unit in stock.units
        if unit.text is not None
    }  # fmt: skip


def _look_up(work: Work, unit: Unit, store: Store | None, closures: Closures) -> Found:
    key = ways.identify(unit, work.request, work.plan, work.toolchain)
    if store is not None and (found := store.find("unit", key, closures)) is not None:
        return Found(key, *found)
    if unit.cuda or unit.exact or unit.generated:
        return Found(key, opening=Opening(unit.headers))
    return Found(key, opening=opened(work, unit))


_CHANGES_HEADERS = ("-D", "-U", "-I", "-i")  # when they came with the compiler's name


def opened(work: Work, unit: Unit) -> Opening:
    """With which headers a unit of the user's begins, as its files are now."""
    if unit.text is not None:
        return _opened(work, unit.text, str(work.tree))
    return opened_file(work, unit.source)


def opened_file(work: Work, path: str) -> Opening:
    """With which headers a file begins, if it is compiled with the flags of the work."""
    return _opened(work, opening.head(path), os.path.dirname(path))


def _opened(work: Work, text: str, folder: str) -> Opening:
    request, toolchain, search = work.request, work.toolchain, None
    options = [word for word in toolchain.argv[1:] if word.startswith(_CHANGES_HEADERS)]
    if toolchain.family == "gcc" and work.follows and not options:
        words = split(f"{work.plan.cflags} {work.plan.post_cflags}")
        search = HeaderSearch.of(
            absolute(words, str(work.folder)), toolchain,
            requested.search_environment(request), requested.home(request),
            cuda.home(request.environment),
        )  # fmt: skip
    if optimises(split(f"{work.plan.cflags} {work.plan.post_cflags}")) and sets_rounding(text):
        return Opening(why="a target or optimize attribute lets g++ fuse or regroup arithmetic")
    return opening.of(text, folder, search)


def enter(work: Work, taken: Taken) -> None:
    """Go a way: write its inline sources into the tree, and link in the kept objects."""
    work._taken = taken
    for unit in taken.way.units:
        place, found = work.tree / unit.object, work.found[unit]
        if found.kept is not None or place.is_symlink():
            place.unlink(missing_ok=True)
        if found.path is not None:
            place.symlink_to(found.path)
        if unit.text is not None and not unit.cuda:
            (work.tree / unit.source).write_text(unit.text, encoding="utf-8", newline="")


def users_error(work: Work, output: str) -> bool:
    """Whether a compiler complained of the user's own lines, as it would behind stock's text."""
    generated = ("binding.cpp", "casters.cpp", "module.cpp", diagnostics.BINDING)
    said = diagnostics.parse(diagnostics.to_user_lines(output, work.lines.values()))
    errors = [one for one in said if one.severity in ("error", "fatal error") and one.line]
    return any(one.file not in generated for one in errors)

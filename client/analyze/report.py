"""What ``warmcc analyze`` finds: the fields of ``--json``.

Times are seconds; moments are seconds since the build began; sizes are bytes.
"""

from __future__ import annotations

from typing import Any

import msgspec

from warmcc.client.stock.processes import Process
from warmcc.record import Span

OWNERS = ("torch", "CUDA", "Python", "standard library", "user", "other")


class Phase(msgspec.Struct):
    """A part of stock's call, one after the other."""

    name: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


class Step(msgspec.Struct):
    """One command of ninja's, by its own log."""

    output: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


class Build(msgspec.Struct):
    """Stock's build of it. ``user`` and ``system`` are the kernel's count for the call and all that
    it started; ``seen`` is how much of that the processes below ninja have in the list; ``memory``
    is the largest one's.
    ``ninja`` is what ninja took beside its commands."""

    wall: float
    user: float
    system: float
    memory: int
    phases: list[Phase]
    steps: list[Step]
    processes: list[Process]
    ninja: float
    seen: float
    accounted: float

    def phase(self, name: str) -> float:
        return sum(one.seconds for one in self.phases if one.name == name)

    def step(self, output: str) -> float:
        return sum(one.seconds for one in self.steps if one.output == output)


class Header(msgspec.Struct):
    """``count``: how often it is read; ``size``: what it leaves after preprocessing; ``reading``:
    from its opening to the next header's; ``parsing``: the front end's time on the processor at
    its declarations, None where that was not measured."""

    path: str
    name: str
    owner: str
    count: int
    size: int
    reading: float
    parsing: float | None = None


class Node(msgspec.Struct):
    """One place in the include tree: ``parent`` is the place of the node that includes it, -1 at
    the top; ``header`` is a place among the headers."""

    header: int
    parent: int
    seconds: float


class Template(msgspec.Struct):
    """Instances of one function template: ``asked`` is the template whose instance asked for the
    first, at the beginning of all requests; empty for code that is no template's."""

    name: str
    count: int
    seconds: float
    asked: str


class Unit(msgspec.Struct):
    """One source. ``preprocessing`` is a run of the preprocessor alone; ``compile`` the compile
    in which ``phases`` (GCC's -ftime-report, wall) and the times of parsing were measured.
    ``not_measured`` says what was not, and why."""

    source: str
    output: str
    cuda: bool
    step: float
    preprocessing: float
    headers: list[Header]
    tree: list[Node]
    compile: float = 0.0
    phases: dict[str, float] = {}
    templates: list[Template] = []
    not_measured: list[str] = []

    def by_owner(self) -> dict[str, tuple[int, int, float, float]]:
        """Headers, bytes, seconds of reading and of parsing, by owner."""
        found = {}
        for owner in OWNERS:
            some = [one for one in self.headers if one.owner == owner]
            if some:
                found[owner] = (
                    len(some), sum(one.size for one in some), sum(one.reading for one in some),
                    sum(one.parsing or 0.0 for one in some),
                )  # fmt: skip
        return found


class Counted(msgspec.Struct):
    """What Python did in one part: files that it opened, folders that it listed, calls of ``stat``,
    imports, and the functions with most time (in a run of its own, under cProfile)."""

    opened: int = 0
    listed: int = 0
    looked: int = 0
    imported: int = 0
    functions: list[dict[str, Any]] = []


class Analysis(msgspec.Struct):
    """All of it. ``ours`` are the steps of warmcc's last build of that name, empty where there is
    none."""

    name: str
    torch: str
    compiler: str
    build: Build
    units: list[Unit]
    importing: Counted
    calling: Counted
    ours: list[Span] = []
    ours_seconds: float = 0.0
    advice: list[str] = []

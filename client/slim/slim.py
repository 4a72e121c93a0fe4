"""``warmcc slim``: the smallest set of torch's headers for a source, and what it gains with stock.

The plan is torch's own (``client/stock/replay.py``), in a temporary folder; the user's files are
only read.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from warmcc.client.live.recipe import CUDA, Recipe
from warmcc.client.slim import complaints, needs
from warmcc.client.slim.compiling import Compiler, NotCompiled
from warmcc.client.slim.index import Index
from warmcc.client.slim.search import Found, Search, Unit
from warmcc.client.slim.text import Block
from warmcc.client.stock import replay
from warmcc.client.stock.processes import run
from warmcc.client.stock.replay import Command, Plan
from warmcc.errors import RequestError
from warmcc.request import Request

Say = Callable[[str], None]
_FLAGS = re.compile(r"^((?:cuda_)?cflags = )", re.M)
# What stock puts in front of an inline source, where something smaller cannot take its place.
_STOCKS = {False: (needs.WHOLE,), True: (needs.TYPES, "cuda.h", "cuda_runtime.h")}
_TURNS = 2
_SECONDS = 3600.0


@dataclass(frozen=True)
class Slimmed:
    """One source. ``path`` is the user's file, or None for the text that stock makes for it;
    ``before`` and ``after`` are its texts, equal where there is nothing to gain, and ``why_not``
    says why. ``headers`` are those of torch that it has now; ``large`` those among what they bring
    along that have all operators."""

    path: str | None
    name: str
    before: str
    after: str
    headers: tuple[str, ...]
    why_not: str = ""
    large: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        return self.before != self.after

    def diff(self) -> str:
        """As ``patch`` reads it."""
        before, after = (text.splitlines(keepends=True) for text in (self.before, self.after))
        return "".join(difflib.unified_diff(before, after, self.name, self.name))


@dataclass(frozen=True)
class Result:
    """All sources of one extension. ``seconds`` are those of stock's ninja before and after, None
    where nothing changed or nothing was measured. ``needs_flag``: the call has to say
    ``no_implicit_headers=True``."""

    name: str
    sources: tuple[Slimmed, ...]
    seconds: tuple[float, float] | None
    needs_flag: bool

    @property
    def gain(self) -> float | None:
        return None if self.seconds is None else self.seconds[0] / self.seconds[1]


@dataclass(frozen=True)
class _Part:
    """A unit of the plan, and what was found for it."""

    command: Command
    unit: Unit
    path: str | None
    found: Found

    @property
    def slimmed(self) -> Slimmed:
        unit, found = self.unit, self.found
        after = unit.text if found.block is None else found.text(unit)
        headers = () if found.block is None else found.block.headers
        name = unit.name if self.path is None else os.path.relpath(self.path)
        return Slimmed(self.path, name, unit.text, after, headers, found.why_not, found.large)


def slim(recipe: Recipe, *, aliases: bool, measure: bool, say: Say) -> Result:
    """Slim the sources of one extension. Raises RequestError (also where it does not compile as it
    is), OSError."""
    request = recipe.request()
    with tempfile.TemporaryDirectory(prefix="warmcc-slim-") as folder:
        stock = Path(folder) / "stock"
        stock.mkdir()
        say("asking torch for its plan")
        plan = replay.plan(request, stock)
        implicit = request.call == "load_inline" and not request.no_implicit_headers
        if implicit and not plan.no_implicit_headers:
            raise RequestError(
                f"torch {plan.torch} puts torch/extension.h in front of inline sources, and its"
                " load_inline has no parameter no_implicit_headers: give the file to load() instead"
            )
        index = Index(plan.include)
        parts = [
            _searched(part, plan, index, aliases, say) for part in _parts(recipe, request, plan)
        ]
        changed = any(part.found.block is not None for part in parts)
        if changed and implicit:
            parts = [_written_out(part) for part in parts]
        seconds = None
        if changed and measure:
            say("measuring stock's build, before and after")
            seconds = _measured(plan, parts)
    return Result(recipe.name, tuple(part.slimmed for part in parts), seconds, implicit and changed)


def _parts(recipe: Recipe, request: Request, plan: Plan) -> list[_Part]:
    """The units of a plan, with nothing found yet. Raises RequestError, OSError."""
    nothing = Found(None)
    found: list[_Part] = []
    for command in plan.units:
        name = os.path.basename(command.source)
        whole = Path(command.source).read_text(encoding="utf-8")
        if request.call == "load":
            folder = Path(command.source).parent
            copy = str(plan.folder / f"{len(found)}_{name}")
            words = [copy if word == command.source else word for word in command.words]
            moved = replace(command, source=copy, words=(words[0], f"-I{folder}", *words[1:]))
            path = next(one for one in recipe.sources if _same(one, command.source))
            found.append(_Part(moved, Unit(name, whole, folder=folder), path, nothing))
            continue
        paths = [path for path in recipe.sources if path.endswith(CUDA) == command.is_cuda]
        if len(paths) > 1:
            raise RequestError(
                "with --functions, a C++ and a CUDA file are one extension: give one of each"
            )
        texts = request.cuda_sources if command.is_cuda else request.cpp_sources
        before, user, after = whole.partition("\n".join(texts))
        unit = Unit(
            name, user, before, after, bool(request.functions) and not command.is_cuda,
            Path(paths[0]).parent if paths else None,
        )  # fmt: skip
        found.append(_Part(command, unit, paths[0] if paths else None, nothing))
    return found


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _searched(part: _Part, plan: Plan, index: Index, aliases: bool, say: Say) -> _Part:
    """Raises RequestError."""
    name = part.slimmed.name

    def tell(text: str) -> None:
        say(f"{name}: {text}")

    compiler = Compiler(part.command, plan.environment)
    try:
        found = Search(part.unit, compiler, index, aliases=aliases, say=tell).run()
    except NotCompiled as error:
        reason = complaints.first(str(error))
        raise RequestError(f"{name} does not compile as it is: {reason}") from None
    return replace(part, found=found)


def _written_out(part: _Part) -> _Part:
    """With stock's own headers where nothing smaller was found: no_implicit_headers is for all
    sources of a call."""
    if part.found.block is not None:
        return part
    block = Block(_STOCKS[part.command.is_cuda])
    return replace(part, found=replace(part.found, block=block, removed=()))


def _measured(plan: Plan, parts: list[_Part]) -> tuple[float, float]:
    """Seconds of stock's ninja with the texts as they are, and with the others: the best of some
    runs each, in turns. Raises RequestError, OSError."""
    took: dict[bool, list[float]] = {False: [], True: []}
    for slimmed in (False, True) * _TURNS:
        for part in parts:
            smaller = slimmed and part.found.block is not None
            text = part.found.whole(part.unit) if smaller else part.unit.whole
            Path(part.command.source).write_text(text, encoding="utf-8", newline="")
        took[slimmed].append(_ninja(plan, parts))
    return min(took[False]), min(took[True])


def _ninja(plan: Plan, parts: list[_Part]) -> float:
    """The seconds of one run of stock's build.ninja with the parts' files. Raises RequestError,
    OSError."""
    text = (plan.folder / "build.ninja").read_text(encoding="utf-8")
    for command, part in zip(plan.units, parts, strict=True):
        text = text.replace(f" {command.source}\n", f" {part.command.source}\n")
        if part.unit.folder is not None:
            text = _FLAGS.sub(rf"\g<1>-I{part.unit.folder} ", text)
    folder = plan.folder.parent / "measured"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "build.ninja").write_text(text, encoding="utf-8")
    began = time.monotonic()
    code, said = run([replay.ninja()], folder, plan.environment, _SECONDS)
    if code != 0:
        raise RequestError(f"stock cannot build the result: {complaints.first(said)}")
    return time.monotonic() - began

"""``warmcc slim``: the smallest set of torch's headers for a source, and what it gains with stock.

The plan is torch's own (``client/stock/replay.py``), in a temporary folder; the user's files are
only read.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from warmcc.client.live.recipe import Recipe
from warmcc.client.slim import complaints, needs
from warmcc.client.slim.compiling import NotCompiled
from warmcc.client.slim.halves import Whole
from warmcc.client.slim.index import Index
from warmcc.client.slim.parts import Part, Say, Slimmed, parts, searched, side_by_side
from warmcc.client.slim.splitting import split
from warmcc.client.slim.text import Block
from warmcc.client.stock import replay
from warmcc.client.stock.processes import run
from warmcc.client.stock.replay import Plan
from warmcc.errors import RequestError

_FLAGS = re.compile(r"^((?:cuda_)?cflags = )", re.M)
# What stock puts in front of an inline source, where something smaller cannot take its place.
_STOCKS = {False: (needs.WHOLE,), True: (needs.TYPES, "cuda.h", "cuda_runtime.h")}
_TURNS = 2
_SECONDS = 3600.0


@dataclass(frozen=True)
class Result:
    """All sources of one extension. ``seconds`` are those of stock's ninja before and after, None
    where nothing changed or nothing was measured. ``needs_flag``: the call has to say
    ``no_implicit_headers=True``. ``why_whole`` says why a source was not split."""

    name: str
    sources: tuple[Slimmed, ...]
    seconds: tuple[float, float] | None
    needs_flag: bool
    why_whole: str = ""

    @property
    def gain(self) -> float | None:
        return None if self.seconds is None else self.seconds[0] / self.seconds[1]


@dataclass(frozen=True)
class _Variant:
    """What is measured: a plan of torch's, and the texts of its units, slimmed or not."""

    plan: Plan
    parts: list[Part]
    slimmed: bool

    def write(self) -> None:
        """Raises OSError."""
        for part in self.parts:
            smaller = self.slimmed and part.found.block is not None
            text = part.found.whole(part.unit) if smaller else part.unit.whole
            Path(part.command.source).write_text(text, encoding="utf-8", newline="")


def slim(recipe: Recipe, *, aliases: bool, measure: bool, splits: bool, say: Say) -> Result:
    """Slim the sources of one extension. With ``splits``, a single one that binds itself is two
    units where that compiles to the same code. Raises RequestError (also where it does not compile
    as it is), OSError."""
    request = recipe.request()
    if splits and request.call == "load_inline":
        raise RequestError(
            "--split is for a file that binds itself; here stock binds the functions"
        )
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
        before = _Variant(plan, parts(recipe, request, plan), False)
        after, why_whole = _slimmed(recipe, before, aliases, splits, say)
        changed = any(part.slimmed.changed for part in after.parts)
        if changed and implicit:
            after = replace(after, parts=[_written_out(part) for part in after.parts])
        seconds = None
        if changed and measure:
            say("measuring stock's build, before and after")
            seconds = _measured(before, after)
    slimmed = tuple(part.slimmed for part in after.parts)
    return Result(recipe.name, slimmed, seconds, implicit and changed, why_whole)


def _slimmed(
    recipe: Recipe, before: _Variant, aliases: bool, splits: bool, say: Say
) -> tuple[_Variant, str]:
    """What was found, and why it is not split. Raises RequestError, OSError."""
    plan, why_whole = before.plan, ""
    index = Index(plan.include)
    if splits:
        try:
            if len(before.parts) > 1:
                raise Whole("it has several sources")
            both, halves = split(recipe, before.parts[0], plan, index, aliases, say)
            return _Variant(both, halves, True), ""
        except Whole as reason:
            why_whole = str(reason)
        except NotCompiled as error:
            raise _as_it_is(before.parts[0], error) from None
    found = side_by_side(lambda part: _searched(part, plan, index, aliases, say), before.parts)
    return _Variant(plan, found, True), why_whole


def _searched(part: Part, plan: Plan, index: Index, aliases: bool, say: Say) -> Part:
    """Raises RequestError."""
    try:
        return searched(part, plan, index, aliases, say)
    except NotCompiled as error:
        raise _as_it_is(part, error) from None


def _as_it_is(part: Part, error: NotCompiled) -> RequestError:
    return RequestError(
        f"{part.slimmed.name} does not compile as it is: {complaints.first(str(error))}"
    )


def _written_out(part: Part) -> Part:
    """With stock's own headers where nothing smaller was found: no_implicit_headers is for all
    sources of a call."""
    if part.found.block is not None:
        return part
    block = Block(_STOCKS[part.command.is_cuda])
    return replace(part, found=replace(part.found, block=block, removed=()))


def _measured(before: _Variant, after: _Variant) -> tuple[float, float]:
    """Seconds of stock's ninja with the texts as they are, and with the others: the best of some
    runs each, in turns. Raises RequestError, OSError."""
    took: dict[bool, list[float]] = {False: [], True: []}
    for variant in (before, after) * _TURNS:
        variant.write()
        took[variant.slimmed].append(_ninja(variant.plan, variant.parts))
    return min(took[False]), min(took[True])


def _ninja(plan: Plan, parts: list[Part]) -> float:
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

"""The units of one extension, each with what was found for it."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from warmcc.client.live.recipe import CUDA, Recipe
from warmcc.client.slim.compiling import Compiler
from warmcc.client.slim.index import Index
from warmcc.client.slim.search import Found, Search, Unit
from warmcc.client.stock.replay import Command, Plan
from warmcc.errors import RequestError
from warmcc.request import Request

Say = Callable[[str], None]


@dataclass(frozen=True)
class Slimmed:
    """One source. ``path`` is the user's file, or None for the text that stock makes for it;
    ``before`` and ``after`` are its texts, equal where there is nothing to gain, and ``why_not``
    says why. ``headers`` are those of torch that it has now; ``large`` those among what they bring
    along that have all operators. A file that is to be made has an empty ``before``."""

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

    @property
    def is_new(self) -> bool:
        return not self.before

    def diff(self) -> str:
        """As ``patch`` reads it."""
        before, after = (text.splitlines(keepends=True) for text in (self.before, self.after))
        old = "/dev/null" if self.is_new else self.name
        return "".join(difflib.unified_diff(before, after, old, self.name))


@dataclass(frozen=True)
class Part:
    """A unit of the plan, and what was found for it. ``original`` is the text of the user's file,
    where the unit is a half of it."""

    command: Command
    unit: Unit
    path: str | None
    found: Found
    original: str | None = None

    @property
    def slimmed(self) -> Slimmed:
        unit, found = self.unit, self.found
        after = unit.text if found.block is None else found.text(unit)
        headers = () if found.block is None else found.block.headers
        name = unit.name if self.path is None else os.path.relpath(self.path)
        before = unit.text if self.original is None else self.original
        return Slimmed(self.path, name, before, after, headers, found.why_not, found.large)


def parts(recipe: Recipe, request: Request, plan: Plan, home: Path | None = None) -> list[Part]:
    """The units of a plan, with nothing found yet. ``home`` is where the user's own headers are, if
    not beside the sources. Raises RequestError, OSError."""
    nothing = Found(None)
    found: list[Part] = []
    for command in plan.units:
        name = os.path.basename(command.source)
        whole = Path(command.source).read_text(encoding="utf-8")
        if request.call == "load":
            folder = home or Path(command.source).parent
            copy = str(plan.folder / f"{len(found)}_{name}")
            words = [copy if word == command.source else word for word in command.words]
            moved = replace(command, source=copy, words=(words[0], f"-I{folder}", *words[1:]))
            path = next(one for one in recipe.sources if _same(one, command.source))
            found.append(Part(moved, Unit(name, whole, folder=folder), path, nothing))
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
        found.append(Part(command, unit, paths[0] if paths else None, nothing))
    return found


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def searched(part: Part, plan: Plan, index: Index, aliases: bool, say: Say) -> Part:
    """Raises NotCompiled where it does not compile as it is."""
    name = part.slimmed.name

    def tell(text: str) -> None:
        say(f"{name}: {text}")

    compiler = Compiler(part.command, plan.environment)
    found = Search(part.unit, compiler, index, aliases=aliases, say=tell).run()
    return replace(part, found=found)


def side_by_side(search: Callable[[Part], Part], several: Sequence[Part]) -> list[Part]:
    """What is found for each. Raises what ``search`` raises."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(search, several))

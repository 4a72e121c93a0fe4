"""A source that binds itself as two units, each slimmed, and compared with the whole."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from warmcc.client.live.recipe import Recipe
from warmcc.client.slim import complaints
from warmcc.client.slim.compiling import Code, Compiler, NotCompiled, differing_halves, readable
from warmcc.client.slim.halves import Whole, halves
from warmcc.client.slim.index import Index
from warmcc.client.slim.parts import Part, Say, parts, searched
from warmcc.client.stock import replay
from warmcc.client.stock.replay import Plan

_ENDING = "_binding.cpp"


def split(
    recipe: Recipe, whole: Part, plan: Plan, index: Index, aliases: bool, say: Say
) -> tuple[Plan, list[Part]]:
    """The functions of a source and their binding, in a plan of torch's for both.
    Raises Whole, and what ``slim.slim`` raises; NotCompiled where it does not compile as it is."""
    assert whole.path is not None
    path = Path(whole.path)
    beside = path.with_name(path.stem + _ENDING)
    if os.path.lexists(beside):
        raise Whole(f"{beside.name} exists")
    made = halves(whole.unit.text)
    both, functions, binding = _planned(recipe, path, beside, plan)
    functions = replace(functions, path=whole.path, original=whole.unit.text)
    binding = replace(binding, path=str(beside), original="")

    def search(part: Part, *texts: str) -> Part:
        return first_that_compiles(part, texts, both, index, aliases, say)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        compiler = Compiler(whole.command, plan.environment)
        exact = pool.submit(compiler.code, whole.unit.compared)
        one = pool.submit(search, functions, made.functions)
        other = pool.submit(search, binding, made.lean, made.binding)
        before = exact.result()
        try:
            found = [one.result(), other.result()]
        except NotCompiled as error:
            reason = complaints.first(str(error))
            raise Whole(f"in two units it does not compile: {reason}") from None
    wrong = differing_halves(
        before, (_code(found[0]), _code(found[1])), whole.unit.text,
        one_compiler=not whole.command.is_cuda,
    )  # fmt: skip
    if wrong:
        raise Whole(f"in two units other code comes of {', '.join(readable(wrong[:3]))}")
    return both, found


def _planned(recipe: Recipe, path: Path, beside: Path, plan: Plan) -> tuple[Plan, Part, Part]:
    """Torch's plan for two sources of these names, and its units."""
    halved, stock = (plan.folder.parent / name for name in ("halves", "both"))
    halved.mkdir()
    stock.mkdir()
    sources = [halved / one.name for one in (path, beside)]
    for one in sources:
        one.touch()
    changed = replace(recipe, sources=tuple(map(str, sources)))
    request = changed.request()
    both = replay.plan(request, stock)
    units = {one.path: one for one in parts(changed, request, both, path.parent)}
    return both, units[str(sources[0])], units[str(sources[1])]


def first_that_compiles(
    part: Part, texts: tuple[str, ...], plan: Plan, index: Index, aliases: bool, say: Say
) -> Part:
    """The unit with one of these texts, slimmed. Raises NotCompiled where none compiles."""
    first, *others = texts
    try:
        return _with(part, first, plan, index, aliases, say)
    except NotCompiled:
        if not others:
            raise
    return first_that_compiles(part, tuple(others), plan, index, aliases, say)


def _with(part: Part, text: str, plan: Plan, index: Index, aliases: bool, say: Say) -> Part:
    """The unit with a text, slimmed, and its code known. Raises NotCompiled."""
    found = searched(replace(part, unit=replace(part.unit, text=text)), plan, index, aliases, say)
    if found.found.code is not None:
        return found
    # It stays as it is, for a reason that needed no compiler
    code = Compiler(found.command, plan.environment).code(found.unit.compared)
    return replace(found, found=replace(found.found, code=code))


def _code(part: Part) -> Code:
    assert part.found.code is not None
    return part.found.code

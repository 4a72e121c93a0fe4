"""The smallest block of includes with which a unit compiles to the same code.

A first guess comes from the names in the text. What the compiler then misses is added; where it
says nothing that helps, a larger header of torch is. When the text compiles, headers are left out
again, one at a time. The code is compared at the end, and decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from warmcc.client.slim import complaints, needs
from warmcc.client.slim.compiling import Code, Compiler, NotCompiled, differing, readable
from warmcc.client.slim.index import Index
from warmcc.client.slim.text import Block, Include, includes, numbered, rewritten

_ROUNDS = 14
_AT_ONCE = 4  # names of one output that are looked up
# What is tried where a compiler's errors name nothing that a header is known for.
_LADDER = (
    needs.TENSOR, needs.TENSOR_OPERATORS, "ATen/Functions.h", needs.TYPES, needs.CASTERS,
    "torch/all.h",
)  # fmt: skip
_FEATURES = "version"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Unit:
    """One source. ``text`` is the user's; ``before`` and ``after`` are what stock puts around it,
    of which ``before`` is left out where the block takes its place. ``binds``: functions are bound
    in ``after``. ``folder`` is where its own headers are."""

    name: str
    text: str
    before: str = ""
    after: str = ""
    binds: bool = False
    folder: Path | None = None

    @property
    def whole(self) -> str:
        """As stock compiles it."""
        return f"{self.before}{self.text}{self.after}"

    @property
    def compared(self) -> str:
        """The same, with the user's lines numbered from 1."""
        return f'{self.before}#line 1 "{self.name}"\n{self.text}{self.after}'


@dataclass(frozen=True)
class Found:
    """``block`` takes the place of ``removed``; ``why_not`` says why there is none. ``large``
    are headers with all operators, which some of its names still need. ``code`` is what the unit
    compiles to, where that was looked at."""

    block: Block | None
    removed: tuple[Include, ...] = ()
    why_not: str = ""
    large: tuple[str, ...] = ()
    code: Code | None = None

    def text(self, unit: Unit) -> str:
        """The user's text with the block."""
        assert self.block is not None
        return rewritten(unit.text, self.removed, self.block)

    def whole(self, unit: Unit) -> str:
        """As stock compiles it, without its own includes in front."""
        return f"{self.text(unit)}{unit.after}"


class Search:
    """Finds the block of one unit."""

    def __init__(
        self, unit: Unit, compiler: Compiler, index: Index, *, aliases: bool, say: Say
    ) -> None:
        self._unit = unit
        self._compiler = compiler
        self._index = index
        self._aliases = aliases
        self._say = say
        # What pybind11 converts depends on its own headers, which stay; and so does what is
        # included under conditions that may be others elsewhere.
        self._removed = tuple(
            one
            for one in includes(unit.text)
            if index.has(one.header)
            and not one.conditional
            and not one.header.startswith("pybind11/")
        )
        self._tried: set[str] = set()
        self._said = ""

    def run(self) -> Found:
        """Raises NotCompiled where the source does not compile as it is."""
        if not self._removed and not self._unit.before:
            return self._cannot("it includes no header of torch itself, or only under conditions")
        if (reason := self._hidden()) is not None:
            return self._cannot(reason)
        self._say("compiling it as it is")
        exact = self._compiler.code(self._unit.compared)
        return replace(self._searched(exact), code=exact)

    def _searched(self, exact: Code) -> Found:
        first = needs.block(
            self._unit.text, self._index, aliases=self._aliases, binds=self._unit.binds
        )
        own = {
            one.header
            for one in includes(self._unit.text)
            if one.angled and not one.conditional and one not in self._removed
        }
        first = replace(first, headers=tuple(one for one in first.headers if one not in own))
        if (block := self._compiling(first)) is None:
            return self._cannot(f"it compiles behind no smaller headers: {self._said}")
        wrong: list[str] = []
        smallest = self._smallest(block)
        whole = needs.reduced(block, self._index)
        for candidate in dict.fromkeys((smallest, _with_macros(smallest), whole)):
            if not (wrong := self._differing(candidate, exact)):
                return self._checked(candidate)
            self._say(f"other code: {', '.join(wrong[:3])}")
        named = ", ".join(readable(wrong[:3])) + (" …" if len(wrong) > 3 else "")
        return self._cannot(f"behind smaller headers other code comes of {named}")

    def _checked(self, block: Block) -> Found:
        brought = self._brought(block)
        large = tuple(
            header for header in ("ATen/Functions.h", "torch/types.h") if header in brought
        )
        before = frozenset[str]()
        for one in self._removed:
            before |= self._index.closure(one.header)
        if self._unit.before:
            whole = needs.WHOLE if not self._compiler.is_cuda else needs.TYPES
            before |= self._index.closure(whole)
        if before <= brought:
            return self._cannot("its names need all that it includes", large)
        return Found(block, self._removed, large=large)

    def _cannot(self, reason: str, large: tuple[str, ...] = ()) -> Found:
        return Found(None, self._removed, reason, large)

    def _brought(self, block: Block) -> frozenset[str]:
        found = frozenset[str]()
        for header in block.headers:
            found |= self._index.closure(header, per_operator=block.per_operator)
        return found

    def _hidden(self) -> str | None:
        """Whether a header of the user's brings torch along, which then stays."""
        if (folder := self._unit.folder) is None:
            return None
        for one in includes(self._unit.text):
            path = folder / one.header
            if not one.angled and path.is_file():
                text = path.read_text(encoding="utf-8", errors="replace")
                if any(self._index.has(inner.header) for inner in includes(text)):
                    return f'"{one.header}" includes torch itself: slim that header first'
        return None

    # ------------------------------------------------------------------ compiling

    def _text(self, block: Block) -> str:
        return numbered(self._unit.text, self._removed, block, self._unit.name) + self._unit.after

    def _compiling(self, block: Block) -> Block | None:
        """The block with what the compiler misses; None where nothing helps."""
        ladder = [one for one in _LADDER if self._index.has(one)]
        output = ""
        for _ in range(_ROUNDS):
            small = needs.reduced(block, self._index)
            self._say(f"trying {len(small.headers)} headers")
            done = self._compiler.parses(self._text(small))
            output = done.output
            wanted = self._wanted(output, small)
            if done.code == 0 and not wanted:
                return block
            if not wanted and ladder:
                wanted = [ladder.pop(0)]
            if not wanted:
                break
            self._tried.update(wanted)
            block = replace(block, headers=(*block.headers, *wanted))
        self._said = complaints.first(output)
        return None

    def _wanted(self, output: str, block: Block) -> list[str]:
        """Headers for what a compiler misses, which have not been tried."""
        have = self._brought(block)
        found: list[str] = []
        if complaints.lacks_operators(output):
            found.append(needs.TENSOR_OPERATORS)
        for name in complaints.unknown(output)[:_AT_ONCE]:
            likely = needs.for_name(name, self._index, per_operator=block.per_operator)
            found += [one for one in likely if one not in self._tried and one not in have][:1]
        return [one for one in dict.fromkeys(found) if one not in self._tried and one not in have]

    def _smallest(self, block: Block) -> Block:
        """Without the headers that are not needed: those that bring along most go first. What they
        brought along is then included itself, where a name leads to it."""
        kept = needs.pinned(self._unit.text, self._index, binds=self._unit.binds)
        while True:
            small = needs.reduced(block, self._index)
            left = [one for one in small.headers if one not in kept]
            if not left:
                return small
            header = max(left, key=lambda one: self._cost(one, small))
            tried = replace(block, headers=tuple(one for one in block.headers if one != header))
            self._say(f"trying without {header}")
            done = self._compiler.parses(self._text(needs.reduced(tried, self._index)))
            if done.code == 0 and not self._wanted(done.output, tried):
                block = tried
            else:
                kept.add(header)

    def _cost(self, header: str, block: Block) -> int:
        return self._index.cost(header, per_operator=block.per_operator)

    def _differing(self, block: Block, exact: Code) -> list[str]:
        """What is not the same behind a block."""
        self._say("comparing the code")
        try:
            made = self._compiler.code(self._text(block))
        except NotCompiled as error:
            return [complaints.first(str(error))]
        return differing(exact, made, self._unit.text)


def _with_macros(block: Block) -> Block:
    """With the standard library's macros for its features in front: torch's headers ask for them
    (``__cpp_lib_bit_cast``), and have them where other headers came before."""
    return replace(block, headers=(_FEATURES, *block.headers))

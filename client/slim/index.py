"""Which header of torch declares a name, and what an include of it brings along.

The headers are read as text. That is a guess, and only says what to try: a compiler decides.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

from warmcc.client.slim.text import PER_OPERATOR

OPERATORS = "ATen/ops"
_SEARCHED = (
    "c10", "ATen", "torch/headeronly", "torch/csrc/utils", "torch/csrc/autograd",
    "torch/csrc/api/include/torch", "torch", "pybind11",
)  # fmt: skip
_NOT_SEARCHED = re.compile(
    r"ATen/(?:ops|native|hip|mps|xpu|metal|miopen|functorch|cudnn|detail)/|torch/csrc/(?:jit|lazy"
    r"|distributed|inductor|dynamo|profiler|api/include)/|/(?:impl|generated|test|nn|optim|data)/"
    r"|_inl\.h$|_fwd\.h$|\.hpp$"
)
_INCLUDED = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"]", re.M)
_CONDITIONAL = re.compile(
    rf"#[ \t]*ifndef[ \t]+{PER_OPERATOR}\b(.*?)#[ \t]*(?:else\b(.*?)#[ \t]*)?endif", re.S
)
_DECLARED = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(?P<macro>\w+)"
    r"|\b(?:class|struct|enum\s+class|enum|union)(?:\s+[A-Z][A-Z0-9_]+(?:\([^)]*\))?)?\s+(?P<type>[A-Za-z_]\w*)"
    r"(?=[^;{}()=]{0,200}\{)"
    r"|\busing\s+(?P<alias>[A-Za-z_]\w*)\s*="
    r"|\btypedef\b[^;{}]*?\b(?P<typedef>[A-Za-z_]\w*)\s*;"
    r"|^(?:[A-Za-z_][\w:<>,&*\s\[\]]*?[\s&*>])?(?P<function>[A-Za-z_]\w*)\s*\((?=[^;{}]{0,400}[;{])"
    r"|\bconstexpr\b[^;(){}=]*?\b(?P<constant>[A-Za-z_]\w*)\s*(?:=|\{)",
    re.M,
)
_WORDS = {"if", "for", "while", "switch", "return", "defined", "sizeof", "decltype", "operator"}


class Index:
    """The headers in torch's folders, the first of which has most."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._texts: dict[str, str | None] = {}
        self._closures: dict[tuple[str, bool], frozenset[str]] = {}

    def has(self, header: str) -> bool:
        return self.place(header) is not None

    def place(self, header: str) -> Path | None:
        """The file of a header, or None for one that is not torch's."""
        return next((path for one in self._folders if (path := one / header).is_file()), None)

    def text(self, header: str) -> str:
        if header not in self._texts:
            path = self.place(header)
            self._texts[header] = (
                None if path is None else path.read_text(encoding="utf-8", errors="replace")
            )
        return self._texts[header] or ""

    def includes(self, header: str, *, per_operator: bool = False) -> list[str]:
        """The headers of torch that a header includes itself."""
        branch = 2 if per_operator else 1
        text = _CONDITIONAL.sub(lambda match: match[branch] or "", self.text(header))
        return [name for name in _INCLUDED.findall(text) if self.has(name)]

    def closure(self, header: str, *, per_operator: bool = False) -> frozenset[str]:
        """A header and all headers of torch that it brings along."""
        key = (header, per_operator)
        if key not in self._closures:
            found, open_ones = {header}, [header]
            while open_ones:
                for name in self.includes(open_ones.pop(), per_operator=per_operator):
                    if name not in found:
                        found.add(name)
                        open_ones.append(name)
            self._closures[key] = frozenset(found)
        return self._closures[key]

    def cost(self, header: str, *, per_operator: bool = False) -> int:
        """How many headers of torch an include brings along."""
        return len(self.closure(header, per_operator=per_operator))

    def operator(self, name: str) -> str | None:
        """The header of one of ATen's operators."""
        header = f"{OPERATORS}/{name}.h"
        return header if self.has(header) else None

    @cached_property
    def factories(self) -> frozenset[str]:
        """The functions that ``torch::`` has beside those of ``at::``, which set
        ``requires_grad``."""
        text = self.text(FACTORIES)
        return frozenset(re.findall(r"^inline at::Tensor (\w+)\(", text, re.M))

    @cached_property
    def _declaring(self) -> dict[str, list[str]]:
        found: defaultdict[str, list[str]] = defaultdict(list)
        for header in self._searched():
            names = {
                name
                for match in _DECLARED.finditer(_without_comments(self.text(header)))
                for name in match.groupdict().values()
                if name is not None and name not in _WORDS
            }
            for name in names:
                found[name].append(header)
        return found

    def _searched(self) -> Iterable[str]:
        seen = set()
        for folder in self._folders:
            for top in _SEARCHED:
                pattern = "*.h" if top == "torch" else "**/*.h"
                for path in (folder / top).glob(pattern):
                    name = str(path.relative_to(folder))
                    if name not in seen and not _NOT_SEARCHED.search(name):
                        seen.add(name)
                        yield name

    def declaring(self, name: str, *, per_operator: bool = False) -> list[str]:
        """The headers that declare a name, those first that bring along least."""
        found = self._declaring.get(name, [])
        return sorted(found, key=lambda one: (self.cost(one, per_operator=per_operator), one))


FACTORIES = "torch/csrc/autograd/generated/variable_factories.h"


def _without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)

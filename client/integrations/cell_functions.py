"""The functions that a source defines for others: what a notebook's cell binds by default."""

from __future__ import annotations

import re

_NOISE = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|^[ \t]*#(?:\\\n|[^\n])*",
    re.S | re.M,
)
_RAW = re.compile(r'R"(\w*)\(.*?\)\1"', re.S)
_NAME = re.compile(r"([A-Za-z_]\w*)\s*\($")
_NOT_BOUND = re.compile(
    r"\b(?:static|inline|template|operator|constexpr|consteval|struct|class|union|enum|namespace"
    r"|extern|using|typedef|"
    r"__global__|__device__|__launch_bounds__|TORCH_LIBRARY\w*|PYBIND11_\w+)\b|=|::\s*~?\w+\s*\($"
)


def defined(text: str) -> list[str]:
    r"""Names of functions with a body, outside of namespaces and classes, in their order.
    Static functions, templates and overloaded names are left out: the last cannot be bound by
    name.

    >>> defined("static int g() { return 1; }\nat::Tensor f(at::Tensor x, int n = 2) { return x; }")
    ['f']
    """
    text = _NOISE.sub(lambda match: " " if match[0][0] != '"' else '""', _RAW.sub('""', text))
    found: list[str] = []
    depth, start = 0, 0
    for index, letter in enumerate(text):
        if letter == "{":
            if depth == 0:
                found += _head(text[start:index])
            depth += 1
        elif letter in "};":
            depth -= letter == "}"
            if depth == 0:
                start = index + 1
    return [name for name in found if found.count(name) == 1]


def _head(text: str) -> list[str]:
    """The name in ``at::Tensor f(at::Tensor x) ``, if it is one's to bind."""
    level = 0
    for index, letter in enumerate(text):
        if letter == "(":
            level += 1
            if level == 1:
                head = text[: index + 1]
                match = _NAME.search(head)
                if match is None or _NOT_BOUND.search(head) or not head[: match.start()].strip():
                    return []
                return [match[1]]
    return []

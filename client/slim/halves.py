"""A source that binds itself, as two: its functions, and the binding with their declarations.

Only the text is read, and a compiler decides later: both halves must compile, and to the code of
the whole. The binding is what needs pybind11; compilers work on the halves side by side.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from warmcc.client.slim.text import Include, code, includes, names

_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$", re.M)
_NAMESPACE = re.compile(r"(?:inline\s+)?namespace\s*([\w:\s]*)")
_LINKAGE = re.compile(r"extern\s*")  # "C" is a string, which is blank here
_NAME = re.compile(r"([A-Za-z_]\w*)\s*\(")
_MODULE = "PYBIND11_MODULE"
_OF_ONE_UNIT = re.compile(r"\b(?:static|inline|constexpr|template|__global__|__device__)\b")
_TENSOR = re.compile(r"\btorch\s*::\s*Tensor\b")  # the same type, in a header of all operators
_CONVERTS = re.compile(r"\bPYBIND11_\w+|\b\w*type_caster\w*|\bnamespace\s+(?:pybind11|PYBIND11)\b")
_OTHERS = ("torch/", "ATen/", "c10/", "cub/", "thrust/", "cuda/", "cooperative_groups/")
_USING = re.compile(r"using\b|typedef\b|namespace\s+\w+\s*=")
_SETS = re.compile(r"^[ \t]*#[ \t]*(?:define|undef)\b", re.M)


class Whole(Exception):
    """A source stays whole; the text says why."""


@dataclass(frozen=True)
class Halves:
    """``functions`` is the source without its module, whose lines keep their numbers; ``binding``
    has the module, with declarations of what it binds. ``lean`` is the same without the source's
    includes of the standard library and CUDA, which a module may not need."""

    functions: str
    binding: str
    lean: str


@dataclass(frozen=True)
class _Piece:
    """A definition with a body, or a statement: what is in front of the ``{`` or ``;``, where that
    begins and ends and all of it ends, and the namespaces around it."""

    head: str
    start: int
    stop: int
    end: int
    brace: bool
    spaces: tuple[str, ...]


def halves(text: str) -> Halves:
    """Raises Whole."""
    plain = _DIRECTIVE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), code(text))
    pieces = _pieces(plain)
    modules = [one for one in pieces if one.head.startswith(_MODULE)]
    if len(modules) != 1:
        raise Whole(f"it has {len(modules)} modules" if modules else f"it has no {_MODULE}")
    module = modules[0]
    if module.spaces:
        raise Whole("its module is in a namespace")
    if any(one.conditional for one in includes(text)):
        raise Whole("some of its includes stand under conditions")
    last = max((one.line for one in includes(text)), default=0)
    if _SETS.search("\n".join(text.split("\n")[:last])):
        raise Whole("it defines macros before its includes, which may be for both halves")
    if match := _CONVERTS.search(plain[: module.start] + plain[module.end :]):
        raise Whole(f"outside of its module it has {match[0]}, which is for both halves")
    bound = {name.rpartition("::")[2] for name in names(plain[module.start : module.end])}
    declared, found = list[str](), set[str]()
    for one in pieces:
        if one is module or one.end > module.start:
            continue
        if not one.spaces and _USING.match(one.head):
            declared.append(text[one.start : one.end].strip())
        elif (match := _NAME.search(one.head)) and match[1] in bound:
            if not one.brace and "=" in one.head[: match.start()]:
                continue  # a variable
            declared.append(_declaration(text, one, match[1]))
            found.add(match[1])
    if not found:
        raise Whole("its module binds no function that stands in front of it")
    body = "\n".join(declared) + "\n\n" + text[module.start : module.end].strip() + "\n"
    lines = text.split("\n")
    others = {one: f"{lines[one.line].strip()}\n" for one in includes(text)}
    # What pybind11 converts, and how, may be in any of these
    kept = "".join(line for one, line in others.items() if not _needless(one))
    return Halves(
        functions=_without(text, module),
        binding=f"{''.join(others.values())}\n{body}",
        lean=f"#include <torch/extension.h>\n{kept}\n{body}",
    )


def _needless(include: Include) -> bool:
    """Whether it is torch's, CUDA's or the standard library's."""
    return include.angled and ("/" not in include.header or include.header.startswith(_OTHERS))


def _without(text: str, piece: _Piece) -> str:
    """The text with blank lines in place of a piece, none of them at its end."""
    gone = "\n" * text.count("\n", piece.start, piece.end)
    return f"{text[: piece.start]}{gone}{text[piece.end :]}".rstrip() + "\n"


def _declaration(text: str, piece: _Piece, name: str) -> str:
    """Raises Whole."""
    if piece.spaces and not all(piece.spaces):
        raise Whole(f"{name} is in a namespace without a name")
    if match := _OF_ONE_UNIT.search(piece.head):
        raise Whole(f"its module binds {name}, which is {match[0]}")
    head = _TENSOR.sub("at::Tensor", text[piece.start : piece.stop].rstrip())
    opened = "".join(
        'extern "C" { ' if one == "extern" else f"namespace {one} {{ " for one in piece.spaces
    )
    return f"{opened}{head};{' }' * len(piece.spaces)}"


def _pieces(plain: str) -> list[_Piece]:
    """What stands in a namespace, in its order. Raises Whole where braces do not match."""
    found = list[_Piece]()
    spaces = list[str]()
    start = at = 0
    while at < len(plain):
        letter = plain[at]
        if letter == "(":
            at = _closed(plain, at, "()")
            continue
        if letter not in "{;}":
            at += 1
            continue
        head = plain[start:at].strip()
        begin = at - len(plain[start:at].lstrip())
        if letter == "{":
            if match := _NAMESPACE.fullmatch(head):
                spaces.append(match[1].strip())
            elif _LINKAGE.fullmatch(head):
                spaces.append("extern")
            else:
                end = _closed(plain, at, "{}")
                found.append(_Piece(head, begin, at, end, True, tuple(spaces)))
                at = start = end
                continue
        elif letter == ";":
            found.append(_Piece(head, begin, at, at + 1, False, tuple(spaces)))
        elif spaces:
            spaces.pop()
        else:
            raise Whole("its braces do not match")
        at = start = at + 1
    return found


def _closed(plain: str, at: int, pair: str) -> int:
    """Behind what closes the bracket at this place. Raises Whole."""
    depth = 0
    for place in range(at, len(plain)):
        depth += (plain[place] == pair[0]) - (plain[place] == pair[1])
        if depth == 0:
            return place + 1
    raise Whole("its brackets do not match")

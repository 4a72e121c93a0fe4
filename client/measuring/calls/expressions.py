"""Arguments as they are typed: ``rand(8, 8, device=cuda)``, ``3``, ``[1, 2]``, ``alpha=0.5``.

A small language in Python's syntax, read from its syntax tree and never evaluated as Python:
values, lists and tuples of them, names of dtypes and devices, the calls that make tensors, and some
methods of these. Reading needs no torch; making the values does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from warmcc.errors import RequestError

# The functions of torch that make tensors
FACTORIES = (
    "arange", "empty", "eye", "full", "linspace", "ones", "rand", "randint", "randn", "randperm",
    "tensor", "zeros",
)  # fmt: skip
METHODS = (
    "abs", "clone", "contiguous", "flatten", "permute", "reshape", "squeeze", "t", "to",
    "transpose", "unsqueeze", "view",
)  # fmt: skip
DTYPES = (
    "bfloat16", "bool", "complex128", "complex64", "double", "float", "float16", "float32",
    "float64", "float8_e4m3fn", "float8_e5m2", "half", "int", "int16", "int32", "int64", "int8",
    "long", "short", "uint8",
)  # fmt: skip
DEVICES = ("cpu", "cuda", "meta", "xpu", "mps")
_LONGEST = 10_000
_KEYWORD = re.compile(r"^([A-Za-z_]\w*)=(?!=)")


@dataclass(frozen=True)
class Name:
    """A dtype or a device."""

    text: str


@dataclass(frozen=True)
class Made:
    """A tensor: by a function, or by a method of another one."""

    function: str
    of: Made | None
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]


def read_words(words: list[str]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments. Raises RequestError.

    >>> read_words(["-1", "rand(2, device=cuda)", "alpha=(1, None)"])[1]
    {'alpha': (1, None)}
    """
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for word in words:
        found = _KEYWORD.match(word)
        if found is None:
            if keywords:
                raise RequestError(f"{word!r} stands behind a keyword argument")
            positional.append(read(word))
        elif found[1] in keywords:
            raise RequestError(f"{found[1]} is given twice")
        else:
            keywords[found[1]] = read(word[found.end() :])
    return positional, keywords


def read(text: str) -> Any:
    """One argument: a plain value, or a ``Name``, or a ``Made``. Raises RequestError."""
    if len(text) > _LONGEST:
        raise RequestError(f"an argument is longer than {_LONGEST} characters")
    try:
        return _read(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise RequestError(f"{text!r} cannot be read: write it as in Python") from None


def _read(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and isinstance(
        node.value, (int, float, complex, str, bytes, type(None))
    ):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = _read(node.operand)
        if isinstance(value, (int, float, complex)):
            return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, (ast.List, ast.Tuple)):
        values = [_read(one) for one in node.elts]
        return values if isinstance(node, ast.List) else tuple(values)
    if isinstance(node, ast.Name):
        return _name(node.id)
    if isinstance(node, ast.Attribute) and _is_torch(node.value) and node.attr in DTYPES:
        return Name(node.attr)
    if isinstance(node, ast.Call):
        return _call(node)
    raise RequestError(f"{ast.unparse(node)!r} is not understood here; {_HELP}")


def _name(text: str) -> Name:
    if text in DTYPES or text in DEVICES:
        return Name(text)
    raise RequestError(f"{text!r} is neither a dtype nor a device; {_HELP}")


def _is_torch(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "torch"


def _call(node: ast.Call) -> Made:
    of: Made | None = None
    if isinstance(node.func, ast.Attribute) and not _is_torch(node.func.value):
        function, known, what = node.func.attr, METHODS, "method"
        of = _read(node.func.value)
        if not isinstance(of, Made):
            raise RequestError(f"{ast.unparse(node.func.value)!r} is not a tensor")
    else:
        function, known, what = ast.unparse(node.func), FACTORIES, "function"
        function = function.removeprefix("torch.")
    if function not in known:
        raise RequestError(f"{function!r} is not a {what} here; known: {', '.join(known)}")
    keywords = {}
    for one in node.keywords:
        if one.arg is None:
            raise RequestError("** is not understood here")
        keywords[one.arg] = _read(one.value)
    return Made(function, of, tuple(_read(one) for one in node.args), keywords)


_HELP = f"there are numbers, strings, lists, dtypes, devices, and {', '.join(FACTORIES)}"


def make(value: Any, torch: Any) -> Any:
    """The value itself. Raises RequestError for what torch refuses."""
    if isinstance(value, Name):
        return torch.device(value.text) if value.text in DEVICES else getattr(torch, value.text)
    if isinstance(value, (list, tuple)):
        return type(value)(make(one, torch) for one in value)
    if not isinstance(value, Made):
        return value
    maker = torch if value.of is None else make(value.of, torch)
    arguments = [make(one, torch) for one in value.arguments]
    keywords = {name: make(one, torch) for name, one in value.keywords.items()}
    try:
        return getattr(maker, value.function)(*arguments, **keywords)
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise RequestError(f"torch refuses {value.function}(…): {reason}") from None

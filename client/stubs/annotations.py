"""From a type as pybind11 names it to an annotation that a type checker understands.

What no Python name is known for, such as a C++ class that is not bound, becomes ``typing.Any``.
"""

from __future__ import annotations

import ast
import builtins
import collections.abc
import importlib
import re
import sys
import typing
from collections.abc import Iterable

_CPP = {
    "at::Tensor": "torch.Tensor", "torch::Tensor": "torch.Tensor", "c10::Layout": "torch.layout",
    "at::Generator": "torch.Generator", "c10::Device": "torch.device",
    "c10::ScalarType": "torch.dtype", "c10::MemoryFormat": "torch.memory_format",
    "c10::Scalar": "torch.types.Number", "std::string": "str", "bool": "bool",
}  # fmt: skip
_SHORT = {
    "Number": "torch.types.Number", "function": "collections.abc.Callable",
    "iterator": "collections.abc.Iterator", "iterable": "collections.abc.Iterable",
    "numpy.ndarray": "numpy.ndarray", "None": "None",
}  # fmt: skip
# Generic types that are written without their parameters
_BARE = {
    **dict.fromkeys(("list", "set", "frozenset", "type"), "typing.Any"),
    **dict.fromkeys(("List", "Set", "FrozenSet", "Type", "Sequence", "Iterable", "Iterator"),
                    "typing.Any"),
    **dict.fromkeys(("dict", "Dict", "Mapping"), "typing.Any, typing.Any"),
    **dict.fromkeys(("tuple", "Tuple"), "typing.Any, ..."),
    "Callable": "..., typing.Any",
    "ndarray": "typing.Any, typing.Any",
}  # fmt: skip
_CPP_NAME = re.compile(r"(?:::)?\w+(?:::\w+)+|\(anonymous namespace\)::\w+")
_UNKNOWN = "unknown_to_python"
ANY = "typing.Any"


class _Unknown(Exception):
    """There is no Python name for a type, which is in the arguments."""


class Annotations:
    """Translates types for one stub, and remembers the ``modules`` that it has to import.

    ``own`` are the qualified names of the module's own classes, and ``taken`` all names in it: what
    it calls ``list`` hides Python's.
    """

    def __init__(self, module: str, own: Iterable[str], taken: Iterable[str]) -> None:
        self._prefix = f"{module}."
        self._own = set(own)
        self._taken = set(taken)
        self.modules: set[str] = set()

    def of(self, text: str, *, result: bool = False) -> tuple[str, str]:
        """The annotation, and the part of ``text`` that is not known, if any."""
        unknown: list[str] = []
        plain = _without_templates(text, unknown)
        try:
            return self._of(ast.parse(plain, mode="eval").body, unknown, result), ", ".join(unknown)
        except (SyntaxError, _Unknown, RecursionError):
            return self.named(ANY), text

    def named(self, dotted: str) -> str:
        """A name of Python's, or of a module that is imported for it."""
        module, _, name = dotted.rpartition(".")
        if not module:
            return f"{self._module('builtins')}.{name}" if name in self._taken else name
        return f"{self._module(module)}.{name}"

    def _module(self, name: str) -> str:
        self.modules.add(name)
        return self._alias(name) or name

    def _alias(self, name: str) -> str | None:
        return f"_{name.replace('.', '_')}" if name.split(".")[0] in self._taken else None

    def imports(self) -> list[str]:
        """The lines that import what was named."""
        found = []
        for name in sorted(self.modules):
            alias = self._alias(name)
            found.append(f"import {name} as {alias}" if alias else f"import {name}")
        return found

    def _of(self, node: ast.expr, unknown: list[str], result: bool) -> str:
        """Raises _Unknown."""

        def inner(one: ast.expr) -> str:
            return self._of(one, unknown, result)

        if isinstance(node, ast.Constant) and (node.value is None or node.value is ...):
            return ast.unparse(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return f"{inner(node.left)} | {inner(node.right)}"
        if isinstance(node, ast.List):
            return f"[{', '.join(map(inner, node.elts))}]"
        if isinstance(node, ast.Tuple):
            return ", ".join(map(inner, node.elts)) or "()"
        if isinstance(node, ast.Subscript):
            return self._subscript(node, inner, result=result)
        name = ast.unparse(node)
        if not re.fullmatch(r"[\w.]+", name):
            raise _Unknown(name)
        found = self._name(name, unknown, result=result)
        bare = None if found in self._own else _BARE.get(found.rpartition(".")[2])
        return found if bare is None else f"{found}[{self._any_in(bare)}]"

    def _any_in(self, text: str) -> str:
        return text.replace(ANY, self.named(ANY)) if ANY in text else text

    def _subscript(self, node: ast.Subscript, inner: typing.Any, *, result: bool) -> str:
        outer = ast.unparse(node.value)
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        last = outer.rpartition(".")[2]
        if last == "Annotated":
            return str(inner(items[0]))
        if last == "ndarray":  # with its numbers' type, as pybind11 2 has it
            return f"{self.named('numpy.typing.NDArray')}[{inner(items[0])}]"
        if last == "Literal":
            return f"{self.named('typing.Literal')}[{', '.join(map(ast.unparse, items))}]"
        if last == "Callable" and isinstance(items[0], ast.Constant):
            return f"{self.named('collections.abc.Callable')}[..., {inner(items[1])}]"
        within = inner(node.slice)
        if outer == "Tuple" and not result and within.endswith(", ..."):
            # torch's arrays of numbers, which it takes from lists as well
            kind = within.removesuffix(", ...")
            return f"{self.named('list')}[{kind}] | {self.named('tuple')}[{within}]"
        return f"{self._name(outer, [], result=result)}[{within}]"

    def _name(self, name: str, unknown: list[str], *, result: bool) -> str:
        """Raises _Unknown."""
        name = _SHORT.get(name, name)
        if name == _UNKNOWN or (name == "object" and result):
            return self.named(ANY)
        if (own := name.removeprefix(self._prefix)) != name and own in self._own:
            return own
        if "." not in name:
            if hasattr(builtins, name) and isinstance(getattr(builtins, name), type):
                return self.named(name)
            if hasattr(typing, name):
                return self.named(f"typing.{name}")
            if hasattr(collections.abc, name):
                return self.named(f"collections.abc.{name}")
        elif _is_there(name):
            return self.named(name)
        unknown.append(name)
        return self.named(ANY)


def _without_templates(text: str, unknown: list[str]) -> str:
    """A type without C++ in it: names that are known are replaced, and others noted.

    >>> _without_templates("list[std::pair<int, a::B>] | c10::Layout", found := []), found
    ('list[unknown_to_python] | torch.layout', ['std::pair<int, a::B>'])
    """
    done, rest = "", text
    while (found := _CPP_NAME.search(rest)) is not None:
        end = found.end()
        depth = 0
        while end < len(rest) and (depth or rest[end] == "<"):
            depth += (rest[end] == "<") - (rest[end] == ">")
            end += 1
        name = rest[found.start() : end]
        known = _CPP.get(name.removeprefix("::"))
        if known is None:
            unknown.append(name)
        done += rest[: found.start()] + (known or _UNKNOWN)
        rest = rest[end:]
    return done + rest


def _is_there(dotted: str) -> bool:
    """Whether a name is one of Python's own library's, of torch's or of numpy's."""
    module, _, name = dotted.rpartition(".")
    if module.split(".")[0] not in {*sys.stdlib_module_names, "torch", "numpy"}:
        return False
    try:
        return hasattr(importlib.import_module(module), name)
    except Exception:
        return False

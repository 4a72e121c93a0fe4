"""Constraints of a space, as texts: Python's expressions over the parameters, without ``eval``.

A text may be somebody else's, and can do no more than compute: it has the parameters, literals,
arithmetic, comparisons, ``and``, ``or``, ``not``, ``in``, ``if … else``, and ``min``, ``max`` and
``abs``. Numbers stay small, so that no expression takes long.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

from warmcc.errors import RequestError

_LARGEST = 1 << 128
_LONGEST = 4096  # characters of a text
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.In: lambda one, others: one in others,
    ast.NotIn: lambda one, others: one not in others,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
}  # fmt: skip
_SIGNS: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: operator.not_, ast.USub: operator.neg, ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "abs": abs}


class Constraint:
    """An expression that is true for the variants of a space.

    >>> fits = Constraint("tile * stages <= 128 and kind in ('a', 'b')", ["tile", "stages", "kind"])
    >>> fits({"tile": 64, "stages": 2, "kind": "a"}), fits({"tile": 64, "stages": 3, "kind": "a"})
    (True, False)
    """

    def __init__(self, text: str, names: Collection[str]) -> None:
        """Raises RequestError for a text that is no such expression over these names."""
        self.text = text
        try:
            if len(text) > _LONGEST:
                raise ValueError("it is too long")
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = error.msg if isinstance(error, SyntaxError) else error
            raise RequestError(f"constraint {text!r} is no expression: {reason}") from None
        self._check(set(names))

    def _check(self, names: set[str]) -> None:
        functions = {id(one.func) for one in ast.walk(self._tree) if isinstance(one, ast.Call)}
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Name) and id(node) not in functions and node.id not in names:
                raise RequestError(
                    f"constraint {self.text!r} names {node.id!r}, which is no parameter; there are "
                    f"{', '.join(sorted(names))}"
                )
            if not _is_known(node):
                raise RequestError(
                    f"constraint {self.text!r} has something that constraints cannot have "
                    f"({type(node).__name__}); see docs/user/prebuild.md"
                )

    def __call__(self, values: Mapping[str, Any]) -> bool:
        """Whether a variant fulfils it. Raises RequestError where that cannot be computed."""
        try:
            return bool(_value(self._tree, values))
        except (ArithmeticError, TypeError, ValueError, RecursionError) as error:
            shown = ", ".join(f"{name}={value}" for name, value in values.items())
            raise RequestError(f"constraint {self.text!r} fails for {shown}: {error}") from None


def _is_known(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (bool, int, float, str))
    if isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        return name in _FUNCTIONS and bool(node.args) and not node.keywords
    kinds = (
        ast.Name, ast.Load, ast.BoolOp, ast.And, ast.Or, ast.Compare, ast.BinOp, ast.UnaryOp,
        ast.IfExp, ast.Tuple, ast.List, *_COMPARISONS, *_ARITHMETIC, *_SIGNS,
    )  # fmt: skip
    return isinstance(node, kinds)


def _value(node: ast.AST, values: Mapping[str, Any]) -> Any:
    """What a part of the tree comes to. ``_check`` has let nothing else through."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return values[node.id]
    if isinstance(node, ast.BoolOp):
        found: Any = None
        for part in node.values:
            found = _value(part, values)
            if bool(found) == isinstance(node.op, ast.Or):
                break
        return found
    if isinstance(node, ast.Compare):
        return _compared(node, values)
    if isinstance(node, ast.BinOp):
        left, right = _number(_value(node.left, values)), _number(_value(node.right, values))
        return _number(_ARITHMETIC[type(node.op)](left, right))
    if isinstance(node, ast.UnaryOp):
        return _SIGNS[type(node.op)](_value(node.operand, values))
    if isinstance(node, ast.IfExp):
        return _value(node.body if _value(node.test, values) else node.orelse, values)
    if isinstance(node, ast.Call):
        assert isinstance(node.func, ast.Name)
        return _FUNCTIONS[node.func.id](*(_value(one, values) for one in node.args))
    assert isinstance(node, (ast.Tuple, ast.List))
    return tuple(_value(one, values) for one in node.elts)


def _compared(node: ast.Compare, values: Mapping[str, Any]) -> bool:
    left = _value(node.left, values)
    for kind, part in zip(node.ops, node.comparators, strict=True):
        right = _value(part, values)
        if not _COMPARISONS[type(kind)](left, right):
            return False
        left = right
    return True


def _number(value: Any) -> Any:
    """Raises TypeError for a text, with which arithmetic could take long, OverflowError."""
    if not isinstance(value, (bool, int, float)):
        raise TypeError(f"{value!r} is no number")
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise OverflowError("a number is too large")
    return value

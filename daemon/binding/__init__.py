"""Bind the functions of an inline source in a unit of their own.

Stock puts the binding behind the user's code, so that every edit compiles pybind11 again. Here the user's unit gets a
short *tail* (the functions' addresses, names and documentation, and the module's entry point), and the *binding unit*
depends on nothing but the signatures: it is compiled once for each list of them and reused by all extensions.
"""

from __future__ import annotations

from dataclasses import dataclass

from warmcc.daemon.binding import signature, tokens
from warmcc.daemon.binding.generate import MARK, tail, unit
from warmcc.daemon.binding.signature import NotUnderstood

__all__ = ["MARK", "Binding", "Declined", "choose"]


@dataclass(frozen=True)
class Binding:
    """``tail`` goes behind the user's text, ``unit`` is the text of the binding unit."""

    tail: str
    unit: str


@dataclass(frozen=True)
class Declined:
    """The functions are bound as stock does it, for this reason."""

    reason: str


def choose(sources: list[str], functions: dict[str, str], module: str, *, error_handling: bool) -> Binding | Declined:
    """The binding of a request's functions (name → documentation), or why there is none."""
    try:
        source = tokens.split("\n".join(sources))
        found = [signature.find(source, name) for name in functions]
    except (NotUnderstood, ValueError) as reason:
        return Declined(str(reason))
    if not found:
        return Declined("no functions")
    return Binding(tail(found, functions, module), unit(found, error_handling=error_handling))

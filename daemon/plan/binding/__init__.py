"""Bind the functions of an inline source in a unit of their own.

Stock puts the binding behind the user's code, so that every edit compiles pybind11 again. Here the
user's unit gets a short *tail* (the functions' addresses, names and documentation) and the module's
*entry* point. The *binding unit* depends on nothing but the signatures, includes no pybind11, and
is reused by all extensions that have the same. The *casters' unit* holds the conversions,
pybind11's own, and is the same for all.
"""

from __future__ import annotations

from dataclasses import dataclass

from warmcc.daemon.plan.binding import signature, tokens
from warmcc.daemon.plan.binding.generate import MARK, casters, entry, tail, unit
from warmcc.daemon.plan.binding.signature import UnreadableSignature

__all__ = ["MARK", "Binding", "Unbindable", "casters", "choose"]


@dataclass(frozen=True)
class Binding:
    """``tail`` goes behind the user's text, ``unit`` is the text of the binding unit.
    ``entry`` alone has the module's name, and goes behind the tail or into a unit of its own."""

    tail: str
    entry: str
    unit: str


@dataclass(frozen=True)
class Unbindable:
    """The functions are bound as stock does it, for this reason."""

    reason: str


def choose(
    sources: list[str], functions: dict[str, str], module: str, *, error_handling: bool
) -> Binding | Unbindable:
    """The binding of a request's functions (name → documentation), or why there is none."""
    try:
        source = tokens.split("\n".join(sources))
        found = [signature.find(source, name) for name in functions]
    except (UnreadableSignature, ValueError) as reason:
        return Unbindable(str(reason))
    if not found:
        return Unbindable("no functions")
    if any(set(text) & {'"', "\n"} for text in functions.values()):
        # Stock pastes it between quotes: that is an error, or more arguments of pybind11's
        return Unbindable("documentation that ends its quotes")
    return Binding(
        tail(found, functions), entry(module), unit(found, error_handling=error_handling)
    )

"""Kernels of all kinds, each with what torch says of the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

N = 10_000


@dataclass(frozen=True)
class Case:
    """``make`` gives the arguments, the results to compare (tensors that the kernel writes) and
    what torch says, all on the GPU. ``made`` is what ``warmcc.kernel`` takes.
    """

    name: str
    source: str
    make: Callable[[Any], tuple[tuple[Any, ...], Any, Any]]
    grid: Any = 40
    block: Any = 256
    expression: str | None = None
    made: dict[str, Any] = field(default_factory=dict)
    launch: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-5


CASES: list[Case] = []


def cases() -> list[Case]:
    from tests.support.kernels import libraries, plain, tensor_cores  # noqa: F401

    return CASES


def case(source: str, **more: Any) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """A case, named as the function that makes its numbers."""

    def add(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        CASES.append(Case(make.__name__, source, make, **more))
        return make

    return add

"""The space of variants: a product of values, or a list; what is taken of it, and their names."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

from warmcc.client.prebuild.constraint import Constraint
from warmcc.errors import RequestError

Value = bool | int | float | str
Parameters = dict[str, Value]
Condition = str | Callable[[Mapping[str, Any]], object]

_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_EMPTY = "the space is empty: no variant fulfils the constraints"
_MOST = 200_000  # variants that are looked at one by one
_TRIES = 200  # for a point of a Latin hypercube
_LOOKED = 20_000  # points of a very large space, where these tries have found none
_COMPARED = 2000  # of them at a time


class Space:
    """Variants that may be built: all combinations of values, or those of a list.

    ``parameters`` is a map of names to values, or a list of maps of names to a value each; values
    are numbers, texts and booleans. ``constraints`` are expressions over the names
    (``"tile * stages <= 256"``), or functions of such a map; all are true for the variants.
    A sample with the same ``seed`` is the same everywhere.

    >>> space = Space({"tile": [32, 64], "stages": [1, 2]}, ["tile * stages < 128"])
    >>> [key_of(one) for one in space]
    ['tile=32,stages=1', 'tile=32,stages=2', 'tile=64,stages=1']
    """

    def __init__(
        self, parameters: Mapping[str, Sequence[Value]] | Iterable[Mapping[str, Value]],
        constraints: Iterable[Condition] = (),
    ) -> None:  # fmt: skip
        """Raises RequestError."""
        self._listed: list[Parameters] | None = None
        if isinstance(parameters, Mapping):
            self._values = {name: list(values) for name, values in parameters.items()}
        else:
            self._listed = checked(parameters)
            names = list(self._listed[0])
            self._values = {
                name: list({text_of(one[name]): one[name] for one in self._listed}.values())
                for name in names
            }
        for name, values in self._values.items():
            _check(name, values)
        if not self._values:
            raise RequestError("the space has no parameters")
        if isinstance(constraints, str):
            raise RequestError("constraints is one text; give a list of them")
        self._constraints = [
            Constraint(one, self._values) if isinstance(one, str) else one for one in constraints
        ]

    @property
    def names(self) -> list[str]:
        """The parameters, in their order."""
        return list(self._values)

    @property
    def size(self) -> int:
        """How many variants there would be without the constraints."""
        if self._listed is not None:
            return len(self._listed)
        return math.prod(map(len, self._values.values()))

    def __iter__(self) -> Iterator[Parameters]:
        return iter(self.all())

    def all(self) -> list[Parameters]:
        """Every variant, the last parameter changing first. Raises RequestError where there is
        none, or more than can be listed."""
        if self.size > _MOST:
            raise RequestError(
                f"the space has {self.size} variants, more than {_MOST}; take a sample of it"
            )
        found = [one for one in map(self._at, range(self.size)) if self._fits(one)]
        if not found:
            raise RequestError(_EMPTY)
        return found

    def random(self, count: int, seed: int = 0) -> list[Parameters]:
        """So many variants, each as likely as any other. Raises RequestError where there are
        fewer."""
        chosen = list(itertools.islice(self._shuffled(Random(seed)), count))
        return self._sample(chosen, count)

    def latin_hypercube(self, count: int, seed: int = 0) -> list[Parameters]:
        """So many variants that have each value of each parameter equally often, as far as
        constraints allow; of a parameter with more values than that, one from each of ``count``
        equal ranges. Raises RequestError where there are fewer."""
        chance = Random(seed)
        cells = [_cells(len(values), count) for values in self._values.values()]
        used = [Counter[int]() for _ in cells]
        chosen: dict[int, None] = {}
        others: list[int] | None = None
        while len(chosen) < count:
            point = self._balanced(chance, cells, used, chosen)
            if point is None:
                if others is None:
                    most = None if self.size <= _MOST else _LOOKED
                    others = list(itertools.islice(self._shuffled(chance), most))
                point = self._nearest(chance, others, cells, used, chosen)
            if point is None:
                break
            chosen[point] = None
            for counted, cell, level in zip(used, cells, self._levels(point), strict=True):
                counted[cell[level]] += 1
        return self._sample(list(chosen), count)

    def _sample(self, chosen: list[int], count: int) -> list[Parameters]:
        """The variants at these places, in the order of the space."""
        if count < 1:
            raise RequestError(f"a sample has at least one variant, not {count}")
        if not chosen:
            raise RequestError(_EMPTY)
        if len(chosen) < count:
            raise RequestError(
                f"the sample wants {count} variants, and the space has only {len(chosen)}"
                + (" that fulfil the constraints" if self._constraints else "")
            )
        return [self._at(index) for index in sorted(chosen)]

    def _shuffled(self, chance: Random) -> Iterator[int]:
        """The places of variants that fulfil the constraints, each once. Of a very large space
        only a part is looked at."""
        places = (
            chance.sample(range(self.size), self.size)
            if self.size <= _MOST
            else _once(chance.randrange(self.size) for _ in range(_MOST))
        )
        return (index for index in places if self._fits(self._at(index)))

    def _balanced(
        self, chance: Random, cells: list[list[int]], used: list[Counter[int]],
        taken: Container[int],
    ) -> int | None:  # fmt: skip
        """A new variant all of whose values are among those that were used least; None where
        chance has found none."""
        if self._listed is not None:
            return None
        rare = []
        for cell, counted in zip(cells, used, strict=True):
            least = min(counted[one] for one in cell)
            rare.append(sorted({one for one in cell if counted[one] == least}))
        for _ in range(_TRIES):
            index = 0
            for cell, choice in zip(cells, rare, strict=True):
                wanted = chance.choice(choice)
                index = index * len(cell) + chance.choice(
                    [level for level, one in enumerate(cell) if one == wanted]
                )
            if index not in taken and self._fits(self._at(index)):
                return index
        return None

    def _nearest(
        self, chance: Random, others: list[int], cells: list[list[int]],
        used: list[Counter[int]], taken: Container[int],
    ) -> int | None:  # fmt: skip
        """Of some of the others, the new variant whose values were used least."""

        def often(index: int) -> int:
            parts = zip(used, cells, self._levels(index), strict=True)
            return sum(counted[cell[level]] for counted, cell, level in parts)

        some = chance.sample(others, min(_COMPARED, len(others)))
        for places in (some, others):
            if fresh := [index for index in places if index not in taken]:
                return min(fresh[:_COMPARED], key=often)
        return None

    def _at(self, index: int) -> Parameters:
        if self._listed is not None:
            return self._listed[index]
        levels = zip(self._values.items(), self._levels(index), strict=True)
        return {name: values[level] for (name, values), level in levels}

    def _levels(self, index: int) -> list[int]:
        """Which value of each parameter the variant at a place has."""
        if self._listed is not None:
            one = self._listed[index]
            return [_index(values, one[name]) for name, values in self._values.items()]
        found = []
        for values in reversed(self._values.values()):
            index, level = divmod(index, len(values))
            found.append(level)
        return found[::-1]

    def _fits(self, parameters: Parameters) -> bool:
        return all(one(parameters) for one in self._constraints)


def _once(numbers: Iterable[int]) -> Iterator[int]:
    seen: set[int] = set()
    for number in numbers:
        if number not in seen:
            seen.add(number)
            yield number


def key_of(parameters: Mapping[str, Value]) -> str:
    """The name of a variant.

    >>> key_of({"tile": 64, "causal": True})
    'tile=64,causal=true'
    """
    return ",".join(f"{name}={text_of(value)}" for name, value in parameters.items())


def text_of(value: Value) -> str:
    """A value as C++ has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def checked(variants: Iterable[Mapping[str, Value]]) -> list[Parameters]:
    """A list of variants, each once, with the same parameters. Raises RequestError."""
    found: dict[str, Parameters] = {}
    names: list[str] = []
    for one in variants:
        if not isinstance(one, Mapping):
            raise RequestError(f"{one!r} is no variant; a variant is a map of names to values")
        names = names or list(one)
        if set(one) != set(names):
            raise RequestError(
                f"variant {key_of(one)!r} has other parameters than {', '.join(names)}"
            )
        for name, value in one.items():
            _check(name, [value])
        parameters = {name: one[name] for name in names}
        if (key := key_of(parameters)) in found:
            raise RequestError(f"variant {key!r} is there twice")
        found[key] = parameters
    if not found or not names:
        raise RequestError("there are no variants")
    return list(found.values())


def _check(name: object, values: Sequence[object]) -> None:
    """Raises RequestError."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RequestError(f"{name!r} is no name of a parameter: letters, digits and _")
    if not values:
        raise RequestError(f"parameter {name!r} has no values")
    for value in values:
        if not isinstance(value, (bool, int, float, str)) or (
            isinstance(value, float) and not math.isfinite(value)
        ):
            raise RequestError(
                f"parameter {name!r}: {value!r} is neither a number nor a text or a boolean"
            )
    texts = Counter(text_of(value) for value in values)  # type: ignore[arg-type]
    if (twice := texts.most_common(1)[0])[1] > 1:
        raise RequestError(f"parameter {name!r} has the value {twice[0]} twice")


def _cells(levels: int, count: int) -> list[int]:
    """For each value of a parameter its range in a sample of so many variants.

    >>> _cells(3, 20), _cells(6, 3)
    ([0, 1, 2], [0, 0, 1, 1, 2, 2])
    """
    return [level if levels <= count else level * count // levels for level in range(levels)]


def _index(values: list[Value], value: Value) -> int:
    return next(at for at, one in enumerate(values) if text_of(one) == text_of(value))

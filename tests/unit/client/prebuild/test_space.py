"""Spaces: what they hold, what samples take of them, and mistakes in them."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warmcc.client.prebuild.constraint import Constraint
from warmcc.client.prebuild.space import Space, key_of
from warmcc.errors import RequestError

SPACES = st.dictionaries(
    st.sampled_from("abcd"), st.lists(st.integers(0, 50), min_size=1, max_size=5, unique=True),
    min_size=1, max_size=3,
)  # fmt: skip


def test_a_product_in_its_order() -> None:
    space = Space({"tile": [32, 64], "kind": ["float", "half"], "causal": [False, True]})
    assert [key_of(one) for one in space][:3] == [
        "tile=32,kind=float,causal=false", "tile=32,kind=float,causal=true",
        "tile=32,kind=half,causal=false",
    ]  # fmt: skip
    assert (space.size, len(space.all()), space.names) == (8, 8, ["tile", "kind", "causal"])


def test_a_list_with_constraints_of_both_kinds() -> None:
    listed = [{"a": 1, "b": 2}, {"b": 3, "a": 2}, {"a": 3, "b": 3}]
    space = Space(listed, ["a < b", lambda one: one["b"] == 3])
    assert space.all() == [{"a": 2, "b": 3}]
    assert Space(listed).latin_hypercube(3) == [
        {"a": 1, "b": 2}, {"a": 2, "b": 3}, {"a": 3, "b": 3}
    ]  # fmt: skip


@settings(deadline=None, max_examples=50)
@given(SPACES, st.data())
def test_samples_are_of_the_space_each_once_and_the_same_again(
    parameters: dict[str, list[int]], data: st.DataObject
) -> None:
    names = list(parameters)
    limit = data.draw(st.integers(0, 100))
    space = Space(parameters, [f"{' + '.join(names)} <= {limit} or {names[0]} % 2 == 0"])
    every = [
        one
        for values in itertools.product(*parameters.values())
        for one in [dict(zip(names, values, strict=True))]
        if sum(values) <= limit or values[0] % 2 == 0
    ]
    seed = data.draw(st.integers(0, 5))
    for take in (space.random, space.latin_hypercube):
        if every:
            count = data.draw(st.integers(1, min(len(every), 12)))
            taken = take(count, seed)
            assert taken == take(count, seed)
            assert len({key_of(one) for one in taken}) == count
            assert all(one in every for one in taken)
        said = f"wants {len(every) + 1} variants" if every else "the space is empty"
        with pytest.raises(RequestError, match=said):
            take(len(every) + 1, seed)


@settings(deadline=None)
@given(SPACES, st.integers(0, 100), st.data())
def test_a_latin_hypercube_has_each_value_equally_often(
    parameters: dict[str, list[int]], seed: int, data: st.DataObject
) -> None:
    """With at most as many points as the longest parameter has values, no two are the same."""
    count = data.draw(st.integers(1, max(map(len, parameters.values()))))
    taken = Space(parameters).latin_hypercube(count, seed)
    for name, values in parameters.items():
        used = Counter(one[name] for one in taken)
        often = [used[value] for value in values]
        if len(values) <= count:
            assert max(often) - min(often) <= 1
        else:
            ranges = Counter(
                at * count // len(values) for at, n in enumerate(often) for _ in range(n)
            )
            assert ranges == Counter(range(count))


def test_a_latin_hypercube_of_a_large_space() -> None:
    parameters = {name: list(range(3)) for name in "abcd"} | {name: [0, 1] for name in "efghi"}
    taken = Space(parameters).latin_hypercube(20, 7)
    for name, values in parameters.items():
        often = Counter(one[name] for one in taken)
        assert max(often.values()) - min(often[value] for value in values) <= 1, name
    huge = Space({f"p{number}": list(range(10)) for number in range(30)}, ["p0 + p1 > 3"])
    assert len(huge.latin_hypercube(50)) == len(huge.random(50)) == 50
    with pytest.raises(RequestError, match="take a sample"):
        huge.all()


def test_a_latin_hypercube_under_a_narrow_constraint() -> None:
    space = Space({name: list(range(20)) for name in "abc"}, ["a == b", "b == c"])
    assert [one["a"] for one in space.latin_hypercube(20)] == list(range(20))


@pytest.mark.parametrize(
    ("parameters", "constraints", "said"),
    [
        ({}, [], "no parameters"),
        ([], [], "there are no variants"),
        ({"a": []}, [], "'a' has no values"),
        ({"a": [1, 1]}, [], "the value 1 twice"),
        ({"a b": [1]}, [], "'a b' is no name"),
        ({"a": [None]}, [], "None is neither"),
        ({"a": [float("nan")]}, [], "nan is neither"),
        ([{"a": 1}, {"b": 1}], [], "'b=1' has other parameters than a"),
        ([{"a": 1}, {"a": 1}], [], "'a=1' is there twice"),
        ({"a": [1]}, ["tile > 1"], "names 'tile', which is no parameter; there are a"),
        ({"a": [1]}, "a > 1", "give a list"),
        ({"a": [1]}, ["a >"], "is no expression"),
        ({"a": [1]}, ["__import__('os')"], "names '__import__'|cannot have"),
        ({"a": [1]}, ["a.real"], "cannot have .Attribute."),
        ({"a": [1]}, ["(lambda: 1)()"], "cannot have"),
        ({"a": [1]}, ["a ** 9"], "cannot have .BinOp|Pow"),
        ({"a": [1]}, ["a" * 5000], "too long"),
    ],
)
def test_mistakes(parameters: Any, constraints: Any, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        Space(parameters, constraints)


def test_mistakes_that_show_with_values() -> None:
    with pytest.raises(RequestError, match="the space is empty"):
        Space({"a": [1]}, ["a > 1"]).all()
    with pytest.raises(RequestError, match="the space is empty"):
        Space({"a": [1]}, ["a > 1"]).random(1)
    with pytest.raises(RequestError, match=r"'a % b == 0' fails for a=1, b=0: .*zero"):
        Space({"a": [1], "b": [0]}, ["a % b == 0"]).all()
    with pytest.raises(RequestError, match="'x' is no number"):
        Space({"a": ["x"]}, ["a * 1000000 == a"]).all()
    with pytest.raises(RequestError, match="too large"):
        Space({"a": [1 << 100]}, ["a * a > 1"]).all()
    with pytest.raises(RequestError, match="at least one variant, not 0"):
        Space({"a": [1]}).random(0)


@settings(deadline=None)
@given(st.integers(-9, 9), st.integers(1, 9))
def test_constraints_are_pythons_expressions(a: int, b: int) -> None:
    for text in (
        "a + b * 2 - a // b >= a % b and not a == b", "min(a, b) < max(a, b, 3) or abs(a) > 5",
        "a in (1, 2, b) or a not in [b]", "-3 < a <= b", "(a if a > b else b) & 6 ^ 1 | 8 > 3",
        "a / b != b / 4",
    ):  # fmt: skip
        assert Constraint(text, ["a", "b"])({"a": a, "b": b}) == bool(eval(text))

"""What makes two calls equal."""

from __future__ import annotations

import array
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmcc.client.connection import remembering

ARGUMENTS: dict[str, Any] = {"name": "f", "sources": ["a.cpp"], "verbose": False, "functions": None}


def key(**changes: Any) -> Any:
    return remembering.key("load_inline", {**ARGUMENTS, **changes})


def test_equal_calls() -> None:
    assert key() == key() and hash(key()) == hash(key())
    assert key(name="".join(["f", ""]), sources=list(ARGUMENTS["sources"])) == key()


@pytest.mark.parametrize(
    "changes",
    [
        {"verbose": True}, {"verbose": None}, {"sources": ("a.cpp",)}, {"sources": "a.cpp"},
        {"sources": [b"a.cpp"]}, {"functions": ["f"]}, {"functions": {"f": ""}}, {"name": "g"},
        {"functions": {"f": "f"}}, {"sources": ["a", ".cpp"]}, {"sources": [["a.cpp"]]},
    ],
)  # fmt: skip
def test_other_arguments(changes: dict[str, Any]) -> None:
    assert key(**changes) != key()


@pytest.mark.parametrize(
    "value", [1, 0.5, b"f", Path("f"), array.array("b", b"f"), memoryview(b"f"), {"f": b"f"},
        [{}, Path()],
    ],
)  # fmt: skip
def test_what_has_no_value_to_compare(value: Any) -> None:
    assert key(functions=value) is None


def test_a_text_of_another_class() -> None:
    class Text(str):
        pass

    assert key(name=Text("f")) is None
    assert key(sources=[Text("a.cpp")]) is None


def test_the_environment_and_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = key()
    monkeypatch.setenv("CXX", "another")
    assert key() != before
    monkeypatch.undo()
    assert key() == before
    monkeypatch.chdir(tmp_path)
    assert key() != before and os.getcwd() in key()


plain = st.one_of(st.text(), st.booleans(), st.none(), st.lists(st.text(max_size=2), max_size=3))
values = st.builds(lambda a, b: {"a": a, "b": b, "functions": None}, plain, plain)


def typed(value: Any) -> Any:
    return type(value), [typed(one) for one in value] if type(value) is list else value


@given(values, values)
def test_keys_are_equal_where_the_arguments_are(one: dict[str, Any], other: dict[str, Any]) -> None:
    same = all(typed(one[name]) == typed(other[name]) for name in one)
    assert (remembering.key("load", one) == remembering.key("load", other)) == same

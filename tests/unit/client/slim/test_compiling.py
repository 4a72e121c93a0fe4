"""What counts as the same code, by real compilers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from warmcc.client.slim.compiling import Code, Compiler, NotCompiled, differing, differing_halves
from warmcc.client.stock.replay import Command

HEADER = """\
#pragma once
inline int grown(int x) { return x + 1; }
inline int twice(int x) { return 2 * x; }
"""


@pytest.fixture
def compiler(tmp_path: Path) -> Compiler:
    source = str(tmp_path / "unit.cpp")
    words = ("g++", "-MMD", "-MF", "x.d", "-fPIC", "-c", source, "-o", "unit.o")
    (tmp_path / "all.h").write_text(HEADER)
    (tmp_path / "declared.h").write_text("int grown(int x);\nint twice(int x);\n")
    environment = {"PATH": os.environ["PATH"]}
    return Compiler(Command(words, tmp_path, source, "unit.o"), environment)


def code(compiler: Compiler, text: str) -> Code:
    return compiler.code(text)


BEFORE = '#include "all.h"\nint f(int x) { return grown(x); }\n'


def test_the_same_functions_are_the_same_code(compiler: Compiler) -> None:
    before = code(compiler, BEFORE)
    after = code(
        compiler, "inline int grown(int x) { return x + 1; }\nint f(int x) { return grown(x); }\n"
    )
    assert differing(before, after, BEFORE) == []
    assert before.defined == {"_Z1fi"}


def test_another_constant_is_other_code(compiler: Compiler) -> None:
    after = code(compiler, '#include "all.h"\nint f(int x) { return grown(x) + 7; }\n')
    assert differing(code(compiler, BEFORE), after, BEFORE) == ["_Z1fi"]


def test_a_function_that_is_gone_or_new_is_other_code(compiler: Compiler) -> None:
    before = code(compiler, BEFORE)
    after = code(compiler, f"{BEFORE}int g() {{ return 1; }}\n")
    assert "_Z1gv" in differing(before, after, BEFORE)
    assert "_Z1gv" in differing(after, before, f"{BEFORE} g")


def test_a_body_that_becomes_a_call_of_nothing_is_noticed(compiler: Compiler) -> None:
    """The functions that call it are the same, and the library could not be loaded."""
    after = code(compiler, '#include "declared.h"\nint f(int x) { return grown(x); }\n')
    assert "_Z5growni" in differing(code(compiler, BEFORE), after, "int f(int x)")


WHOLE = '#include "all.h"\nint f(int x) { return grown(x); }\nint g(int x) { return f(x) + 1; }\n'
ONE = '#include "all.h"\nint f(int x) { return grown(x); }\n'
OTHER = "int f(int x);\nint g(int x) { return f(x) + 1; }\n"


@pytest.mark.parametrize(
    ("one", "other", "wrong"),
    [
        (ONE, OTHER, []),
        (ONE, OTHER.replace("1", "2"), ["_Z1gi"]),
        (ONE, f"{OTHER}int h() {{ return 1; }}\n", ["_Z1hv"]),
        (ONE, "int f(int x);\n", ["_Z1gi"]),
        # Two objects that could not be linked
        (WHOLE, OTHER, ["_Z1gi"]),
        (ONE.replace("int f", "static int f"), OTHER, ["_Z1fi"]),
        (ONE.replace("all.h", "declared.h"), OTHER, ["_Z5growni"]),
        (ONE.replace("int f", "inline int f"), OTHER, ["_Z1fi"]),
        (ONE, f"{OTHER}template <class T> int t(T x) {{ return x; }}\ntemplate int t(int);\n",
         ["_Z1tIiEiT_"]),
    ],
)  # fmt: skip
def test_two_objects_in_place_of_one(
    compiler: Compiler, one: str, other: str, wrong: list[str]
) -> None:
    before = code(compiler, WHOLE)
    halves = (code(compiler, one), code(compiler, other))
    assert set(wrong) <= set(differing_halves(before, halves, f"{WHOLE} h"))
    assert bool(wrong) == bool(differing_halves(before, halves, WHOLE))


def test_another_compiler_has_other_names_for_instances(compiler: Compiler) -> None:
    """Those of the binding are g++'s, where nvcc compiled the whole."""
    before, one = code(compiler, WHOLE), code(compiler, ONE)
    instance = "template <class T> int t(T x) { return x; }\ntemplate int t(int);\n"
    other = code(compiler, f"{OTHER}{instance}")
    assert differing_halves(before, (one, other), WHOLE) == ["_Z1tIiEiT_"]
    assert differing_halves(before, (one, other), WHOLE, one_compiler=False) == []
    other = code(compiler, "int f(int x);\nint g(int x) { return f(x) + 2; }\n")
    assert differing_halves(before, (one, other), WHOLE, one_compiler=False) == ["_Z1gi"]


def test_errors_are_told(compiler: Compiler) -> None:
    assert compiler.parses(BEFORE).code == 0
    assert compiler.parses("int f() { return x; }\n").code != 0
    with pytest.raises(NotCompiled, match="was not declared"):
        compiler.code("int f() { return x; }\n")


def test_an_instance_that_was_not_there_is_noticed(compiler: Compiler) -> None:
    """A specialization that a header had is missing: the caller is the same."""
    primary = "template <class T> struct Of { static int size() { return 1; } };\n"
    special = "template <> struct Of<int> { static int size(); };\n"
    use = "template <class T> int sized() { return Of<T>::size(); }\n"
    use += "int f() { return sized<int>(); }\n"
    found = differing(
        code(compiler, primary + special + use), code(compiler, primary + use), "int f()"
    )
    assert found == ["_ZN2OfIiE4sizeEv"]

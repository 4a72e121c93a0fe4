"""Assembler texts are compared function by function, whatever else is in them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from warmcc import assembly

BODY = """
int twice(int x) { return x + x; }
const char* greet(int x) { return x > 3 ? "hello" : "bye"; }
double half(double x) { for (int i = 0; i < 3; ++i) { if (x > 7.5) return x; x *= 0.5; } return x; }
"""
OTHER = (
    'static const char* before() { return "something"; }\n'
    "int more(int x) { return before()[x] ? 1 : 2; }\n"
)


def assemble(folder: Path, text: str) -> str:
    (folder / "main.cpp").write_text(text)
    subprocess.run(["g++", "-fPIC", "-S", "main.cpp"], cwd=folder, check=True, timeout=60)
    return (folder / "main.s").read_text()


def test_the_same_functions_among_others(tmp_path: Path) -> None:
    one, other = assemble(tmp_path, BODY), assemble(tmp_path, OTHER + BODY)
    assert {"_Z5twicei", "_Z5greeti", "_Z4halfd"} <= assembly.functions(one).keys()
    assert assembly.differing(one, other, BODY) == []


def test_what_differs_is_found(tmp_path: Path) -> None:
    one = assemble(tmp_path, BODY)
    for change, name in (
        ("x + x", "_Z5twicei"),
        ('"hello"', "_Z5greeti"),
        ("7.5", "_Z4halfd"),
        ("*= 0.5", "_Z4halfd"),
    ):
        changed = {"x + x": "x + 2 * x", '"hello"': '"hellO"', "7.5": "7.25", "*= 0.5": "*= 0.25"}[
            change
        ]
        assert assembly.differing(
            one, assemble(tmp_path, OTHER + BODY.replace(change, changed)), BODY
        ) == [name]


def test_what_is_missing_differs_and_what_is_a_librarys_does_not_count(tmp_path: Path) -> None:
    text = (
        "namespace std { int theirs() { return 1; } }\n"
        "namespace { int mine() { return std::theirs(); } }\n"
    )
    one = assemble(tmp_path, text + "int all() { return mine(); }\n")
    assert sorted(assembly.users(one, "std mine all")) == ["_Z3allv", "_ZN12_GLOBAL__N_14mineEv"]
    assert assembly.differing(one, "", "all") == ["_Z3allv", "_ZN12_GLOBAL__N_14mineEv"]

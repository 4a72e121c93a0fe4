"""Modules and functions of tests and benchmarks are short. Those of the package: test_rooms.py."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.unit.test_rooms import FUNCTION, LINES

FILES = [path for top in ("tests", "benchmarks") for path in sorted((ROOT / top).rglob("*.py"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_and_functions_are_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < FUNCTION, node.name

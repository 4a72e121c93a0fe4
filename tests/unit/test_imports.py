"""Imports point one way, and importing warmcc is light."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

ALLOWED = {"client": {"warmcc.client"}, "daemon": {"warmcc.daemon"}, "warmcc": set()}


def imported(path: Path) -> set[str]:
    """Names of modules that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@pytest.mark.parametrize("side", sorted(ALLOWED))
def test_imports_point_one_way(side: str) -> None:
    files = [
        path
        for path in (ROOT / side).rglob("*.py")
        if (side != "warmcc" or path.parent == ROOT / "warmcc")
    ]
    assert len(files) > 5
    for path in files:
        if path.parent == ROOT / "warmcc" and path.stem in ("__init__", "__main__", "inductor"):
            continue  # the public names live in the client, and are looked up when they are used
        for name in imported(path):
            for other in ("warmcc.client", "warmcc.daemon"):
                crossing = name == other or name.startswith(other + ".")
                assert not crossing or other in ALLOWED[side], (
                    f"{path.relative_to(ROOT)} imports {name}"
                )


def test_tests_and_benchmarks_stand_alone() -> None:
    """Benchmarks measure without what tests use, and only the tests of benchmarks import those."""

    def importing(folder: str, other: str) -> set[str]:
        return {
            str(path.relative_to(ROOT))
            for path in (ROOT / folder).rglob("*.py")
            if any(name == other or name.startswith(f"{other}.") for name in imported(path))
        }

    assert importing("benchmarks", "tests") == set()
    crossing = importing("tests", "benchmarks")
    assert crossing and all(path.startswith("tests/benchmarks/") for path in crossing)


def test_nothing_is_pickled() -> None:
    """Nor read from bytes that say what they are; ``marshal`` may write them, to compare."""
    for side in ALLOWED:
        for path in (ROOT / side).rglob("*.py"):
            assert not imported(path) & {"pickle", "shelve", "dill"}, path
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"marshal\.load|from marshal import", text), path


def loaded_by(code: str) -> set[str]:
    text = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"],
        check=True, capture_output=True, text=True, cwd="/",
    ).stdout  # fmt: skip
    return set(json.loads(text.splitlines()[-1]))


@pytest.mark.parametrize(
    "code", ["import warmcc", "import warmcc; warmcc.load_inline, warmcc.load, warmcc.CompileError"]
)
def test_importing_warmcc_imports_neither_torch_nor_zmq(code: str) -> None:
    assert "warmcc" in loaded_by(code)
    assert not loaded_by(code) & {"torch", "zmq", "rich", "asyncio", "psutil", "numpy"}


def test_importing_warmcc_is_light() -> None:
    """Counted in modules, since a test asserts no times: the benchmark ``import_time`` measures
    it.
    """
    assert len(loaded_by("import warmcc") - loaded_by("pass")) < 20


def test_the_daemon_imports_no_torch() -> None:
    assert "torch" not in loaded_by("import warmcc.daemon.main")


def test_unknown_names_are_attribute_errors() -> None:
    import warmcc

    with pytest.raises(AttributeError, match="nonsense"):
        _ = warmcc.nonsense  # type: ignore[attr-defined]
    assert "load_inline" in dir(warmcc)

"""``make quick`` chooses the tests of what was changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import ROOT, quick


def chosen(*names: str) -> tuple[set[str], set[str]]:
    found = quick.choose([ROOT / name for name in names])
    first, others = ({str(path.relative_to(ROOT)) for path in paths} for paths in found)
    return first, others


def test_what_imports_a_module_through_others_depends_on_it() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": set[str](), "d": {"a", "d"}, "e": {"f"}, "f": {"e"}}
    assert quick.dependents({"c"}, imports) == {"a", "b", "c", "d"}
    assert quick.dependents({"e"}, imports) == {"e", "f"}
    assert quick.dependents({"d"}, imports) == {"d"}


def test_a_module_brings_its_own_tests_and_those_named_after_it() -> None:
    first, others = chosen("daemon/plan/keys.py")
    assert "tests/integration/builds/test_keys.py" in others
    assert "tests/unit/daemon/store/test_eviction.py" not in first
    first, _ = chosen("daemon/store/tree.py")
    assert "tests/unit/daemon/store/test_eviction.py" in first
    assert "tests/unit/client/test_loader.py" not in first


def test_a_test_brings_itself() -> None:
    assert chosen("tests/live/test_watch.py")[1] == {"tests/live/test_watch.py"}


def test_what_all_modules_share_is_always_tested() -> None:
    for name in ("daemon/plan/keys.py", "tests/live/test_watch.py"):
        assert set(quick.ALWAYS) <= chosen(name)[0]


@pytest.mark.parametrize("name", ["pyproject.toml", "daemon/native/forkserver.c", "Makefile"])
def test_anything_but_a_module_brings_all_quick_tests(name: str) -> None:
    first, others = chosen(name)
    everything = {
        str(path.relative_to(ROOT))
        for top in quick.QUICK
        for path in Path(ROOT / top).rglob("test_*.py")
    }
    assert first == everything and not others


def test_documentation_brings_none() -> None:
    assert chosen("README.md", "docs/architecture.md") == (set(), set())

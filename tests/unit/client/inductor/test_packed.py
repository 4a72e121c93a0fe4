"""The compiler's name in the keys of torch's artifacts. The modules have the names of torch's; with
torch itself: ``tests/integration/client/test_inductor.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import warmcc
from warmcc.client.inductor import packed

OWN, DEFAULT = (None, "/opt/gcc/bin/g++"), (None, "g++")


@pytest.fixture
def inductor(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Inductor's modules, in a process with bundles whose artifacts are loaded."""
    modules: dict[str, Any] = {}
    for name in ("config", "cpp_builder", "compile_fx"):
        modules[name] = ModuleType(f"torch._inductor.{name}")
        monkeypatch.setitem(sys.modules, f"torch._inductor.{name}", modules[name])
    modules["config"].cpp = SimpleNamespace(cxx=OWN)
    modules["cpp_builder"].cpp_compiler_search = lambda search: search[-1]
    modules["cpp_builder"].run_compile_cmd = lambda cmd_line, cwd: None
    monkeypatch.setattr(packed, "_begun", True)
    monkeypatch.setenv("WARMCC_OFFLINE", "1")
    yield modules
    warmcc.inductor.disable()


def test_keys_have_the_default_and_the_search_finds_the_process_s(inductor: dict[str, Any]) -> None:
    for _ in range(2):  # enabled once more, it is the same
        with warmcc.inductor.enable():
            assert inductor["config"].cpp.cxx == DEFAULT
            assert inductor["cpp_builder"].cpp_compiler_search(DEFAULT) == OWN[1]
            assert inductor["cpp_builder"].cpp_compiler_search((None, "clang++")) == "clang++"
        assert inductor["config"].cpp.cxx == OWN


def test_what_was_set_since_then_stays(inductor: dict[str, Any]) -> None:
    with warmcc.inductor.enable():
        inductor["config"].cpp.cxx = (None, "clang++")
    assert inductor["config"].cpp.cxx == (None, "clang++")


def test_without_bundles_it_stays(
    inductor: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path_factory: Any
) -> None:
    monkeypatch.delenv("WARMCC_OFFLINE")
    monkeypatch.setenv("WARMCC_BUNDLES", str(tmp_path_factory.mktemp("empty") / "none"))
    with warmcc.inductor.enable():
        assert inductor["config"].cpp.cxx == OWN


def test_the_default_stays_the_default(inductor: dict[str, Any]) -> None:
    inductor["config"].cpp.cxx = DEFAULT
    with warmcc.inductor.enable():
        assert inductor["cpp_builder"].cpp_compiler_search(DEFAULT) == "g++"
    assert inductor["config"].cpp.cxx == DEFAULT

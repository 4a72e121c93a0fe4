"""What is put in the place of torch's functions, and what is not. The modules here have the names
of torch's; with torch itself: ``tests/integration/client/test_inductor.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import warmcc
from warmcc.client import notices
from warmcc.errors import WarmccWarning

BUILDER = "torch._inductor.cpp_builder"


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module of this name, without functions."""
    module = ModuleType(BUILDER)
    monkeypatch.setitem(sys.modules, BUILDER, module)
    notices._given.clear()
    yield module
    warmcc.inductor.disable()


def put(module: ModuleType, name: str, function: Any) -> Any:
    setattr(module, name, function)
    return function


def test_it_is_replaced_and_given_back(builder: ModuleType) -> None:
    def run_compile_cmd(cmd_line: str, cwd: str) -> None: ...

    own = put(builder, "run_compile_cmd", run_compile_cmd)
    with warmcc.inductor.enable():
        assert builder.run_compile_cmd is not own and warmcc.inductor.is_enabled()
        with warmcc.inductor.enable():  # once more changes nothing, also at its end
            pass
        assert builder.run_compile_cmd is not own
    assert builder.run_compile_cmd is own and not warmcc.inductor.is_enabled()


def test_by_modules_that_are_gone(builder: ModuleType) -> None:
    """A fork of a zygote has imported warmcc once more."""

    def run_command_line(cmd_line: str, cwd: str) -> bytes:
        return b"own"

    own = put(builder, "run_command_line", run_command_line)
    warmcc.inductor.enable()
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if "client.inductor" in name}
    try:
        assert warmcc.inductor.is_enabled()
        warmcc.inductor.disable()
        assert builder.run_command_line is own
    finally:
        sys.modules.update(kept)


@pytest.mark.parametrize(
    "function", [None, lambda command: None, lambda cwd, cmd_line: None], ids=["", "one", "turned"]
)
def test_a_torch_that_is_not_as_expected(builder: ModuleType, function: Any) -> None:
    """It is left alone, and that is said once."""
    if function is not None:
        put(builder, "run_compile_cmd", function)
    with pytest.warns(WarmccWarning, match=r"Torch compiles by itself there"):
        warmcc.inductor.enable()
    assert getattr(builder, "run_compile_cmd", None) is function
    warmcc.inductor.disable()
    warmcc.inductor.enable()  # and no second warning


def test_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is imported for it."""
    before = set(sys.modules)
    with warmcc.inductor.enable():
        pass
    assert not {name for name in set(sys.modules) - before if name.startswith("torch")}

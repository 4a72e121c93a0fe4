"""One name in a process that warmcc and stock torch both use: each call gets its own module.

Since version 3, pybind11 gives what it has initialised under a name before, for whatever is loaded
under that name later.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemons import Daemon

CODE = """
import os, sys, tempfile
import warmcc

def served(number):
    return warmcc.load_inline("mixed", f"int f() {{ return {number}; }}", functions=["f"])

def left_to_stock(number):
    os.environ["WARMCC_DISABLE"] = "1"
    try:
        return served(number)
    finally:
        del os.environ["WARMCC_DISABLE"]

def by_stock(number):
    from torch.utils import cpp_extension
    source = f"int f() {{ return {number}; }}"
    return cpp_extension.load_inline("mixed", source, functions=["f"])

made = [globals()[word](number) for number, word in enumerate(sys.argv[1:])]
made.append(served(0) if sys.argv[1] == "served" else by_stock(0))
print([module.f() for module in made], made[-1] is made[0])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "calls",
    ["served left_to_stock served", "left_to_stock served", "served by_stock", "by_stock served"],
)
def test_each_call_has_its_own_module(calls: str, daemon: Daemon, tmp_path: Path) -> None:
    environment = {
        **os.environ, **daemon.environment, "TORCH_EXTENSIONS_DIR": str(tmp_path / "stock"),
    }  # fmt: skip
    words = calls.split()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CODE, *words], env=environment, text=True,
        capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    numbers = [*range(len(words)), 0]
    assert done.stdout.startswith(str(numbers)), done.stdout
    if words[0] == "served":
        assert done.stdout.endswith("True\n"), "an equal call gives the same module"

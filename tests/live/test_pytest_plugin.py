"""The fixture ``warmcc_module`` in a session of pytest's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemons import Daemon

TESTS = """
def test_first(warmcc_module):
    assert warmcc_module("one", "one.cpp", ["number"]).number() == 1

def test_again(warmcc_module):
    first = warmcc_module("one", "one.cpp", ["number"])
    assert warmcc_module("one", "one.cpp", ["number"]) is first

def test_broken(warmcc_module):
    warmcc_module("two", ["two.cpp"], ["number"])
"""


@pytest.mark.slow
def test_a_module_for_a_session(client: Daemon, tmp_path: Path) -> None:
    (tmp_path / "one.cpp").write_text("int number() { return 1; }")
    (tmp_path / "two.cpp").write_text("int number() { return nothing; }")
    (tmp_path / "test_them.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_them.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "2 passed" in done.stdout and "1 failed" in done.stdout, done.stdout
    assert "two does not build" in done.stdout and "two.cpp:1:23: error" in done.stdout
    assert "Traceback" not in done.stdout

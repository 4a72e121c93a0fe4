"""The programs in ``examples/`` run, and do what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemons import Daemon
from tests.support.pages import TOP

EXAMPLES = TOP / "examples"
# What each prints, in part; tests/cuda/test_docs.py runs the one for CUDA.
PRINTED = {
    "cpp_op.py": ["value and gradient are right"],
    "evaluate.py": [
        "one_pass: ", "µs per call", "not_normalized: wrong result", "does_not_compile: line 1: ",
        "axis",
    ],
    "watch_loop.py": ["version 1: [1.0, 1.0]", "version 2: [2.0, 2.0]", "version 2 stays in use"],
    "test_relu.py": ["3 passed"],
}  # fmt: skip


def run(name: str, daemon: Daemon, folder: Path) -> str:
    """Run an example in another folder, as a copy of it would be."""
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider"] if name.startswith("test_") else []
    environment = {
        **os.environ, **daemon.environment, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(TOP),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, *words, str(EXAMPLES / name)],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", PRINTED)
def test_it_runs(name: str, warm: Daemon, tmp_path: Path) -> None:
    printed = run(name, warm, tmp_path)
    for part in PRINTED[name]:
        assert part in printed, printed


@pytest.mark.slow
def test_the_notebook_runs(warm: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    for key, value in {**warm.environment, "PYTHONPATH": str(TOP)}.items():
        monkeypatch.setenv(key, value)
    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=120).execute()
    (last,) = [cell for cell in notebook.cells if cell.source == "f(torch.zeros(3))"]
    assert last.outputs[0].data["text/plain"] == "tensor([1., 1., 1.])"


def test_every_example_is_listed_and_tested() -> None:
    found = {path.name for path in EXAMPLES.iterdir() if path.is_file()}
    listed = (EXAMPLES / "README.md").read_text()
    assert all(f"({name})" in listed for name in found - {"README.md"})
    tested = {*PRINTED, "cuda_kernel.py", "notebook.ipynb"}
    assert found - tested == {"README.md", "relu.cpp"}

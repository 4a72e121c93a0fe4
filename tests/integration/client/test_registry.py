"""A project from a package registry that uses torch's C++, built by its own ``setup.py`` with
``warmcc`` in front of the compilers: the code in its objects is that of a build without warmcc.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.integration.client.test_launcher import bin_folder, counts, run
from tests.integration.client.test_objects import code_of
from tests.support.daemons import Daemon

__all__ = ["bin_folder"]
PACKAGE = "torch_spline_conv-1.2.2"  # five files, compiled by gcc one after the other
PINNED = (
    "torch-spline-conv==1.2.2 "
    "--hash=sha256:ed45a81da29f774665dbdd4709d7e534cdf16d2e7006dbd06957f35bd09661b2"
)
FILES = 5
USE = """
import sys, torch
for name in ("basis", "weighting"):
    torch.ops.load_library(f"torch_spline_conv/_{name}_cpu.so")
ops = torch.ops.torch_spline_conv
pseudo = torch.linspace(0.05, 0.95, 12).view(6, 2)
basis, index = ops.spline_basis(pseudo, torch.tensor([5, 5]), torch.tensor([1, 1]).byte(), 2)
weight = torch.arange(25.0 * 2 * 3).view(25, 2, 3)
print(basis.tolist(), index.tolist())
print(ops.spline_weighting(torch.ones(6, 2), weight, basis, index).tolist())
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project, as its authors published it."""
    folder = tmp_path_factory.mktemp("registry")
    (folder / "pinned.txt").write_text(PINNED)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    tools = {**os.environ, "PYTHONPATH": str(folder / "tools")}  # for pip's look at a setup.py
    for words in (
        ["install", "--no-deps", "--target", str(folder / "tools"), "wheel==0.45.1"],
        ["download", "--no-deps", "--no-build-isolation", "--no-binary=:all:", "--require-hashes",
         "-r", "pinned.txt"],
    ):  # fmt: skip
        done = subprocess.run(
            [*pip, *words], cwd=folder, env=tools, capture_output=True, text=True, timeout=250
        )
        if done.returncode != 0:
            pytest.skip(f"{PACKAGE} cannot be downloaded: {done.stderr.splitlines()[-1:]}")
    with tarfile.open(folder / f"{PACKAGE}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / PACKAGE


def built(sources: Path, daemon: Daemon, bin_folder: Path, launcher: str) -> dict[str, object]:
    """Build in place, from nothing; the code of each object, and what the project then computes."""
    for path in [*sources.rglob("*.o"), *sources.rglob("*.so")]:
        path.unlink()
    compilers = {"CC": f"{launcher}gcc", "CXX": f"{launcher}g++", "FORCE_ONLY_CPU": "1"}
    words = [sys.executable, "setup.py", "build_ext", "--inplace", "--force"]
    done = subprocess.run(
        words, cwd=sources, capture_output=True, text=True, timeout=1500,
        env={**os.environ, **daemon.environment, **compilers,
             "PATH": f"{bin_folder}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found: dict[str, object] = {
        str(path.relative_to(sources)): code_of(path) for path in sorted(sources.rglob("*.o"))
    }
    assert len(found) == FILES
    used = run([sys.executable, "-c", USE], sources, daemon, bin_folder)
    assert used.returncode == 0, used.stderr
    return {**found, "it computes": used.stdout}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_project_of_a_registry(daemon: Daemon, sources: Path, bin_folder: Path) -> None:
    hits, misses = counts(daemon)
    theirs = built(sources, daemon, bin_folder, "")
    assert counts(daemon) == (hits, misses)
    for number in (1, 2):
        ours = built(sources, daemon, bin_folder, "warmcc ")
        assert counts(daemon) == (hits + FILES * (number - 1), misses + FILES)
        assert ours.keys() == theirs.keys()
        assert [name for name in theirs if ours[name] != theirs[name]] == []

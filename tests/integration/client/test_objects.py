"""A setup.py with torch's ``BuildExtension``, under ``warmcc exec``: a real setuptools, daemon and
compiler.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemons import Daemon
from tests.support.host_code import code_of

SETUP = """
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

setup(
    name="pack",
    ext_modules=[CppExtension("pack_c", ["src/a.cpp", "src/b.cpp"], include_dirs=["src"],
                              define_macros=[("SCALE", "3")])],
    cmdclass={"build_ext": BuildExtension},
)
"""
HEADER = """int scaled(int value);
const char* of_source();
inline const char* of_header() { return __FILE__; }
"""
A = """#include <pybind11/stl.h>
#include "own.h"
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("scaled", &scaled);
  m.def("files", [] { return std::vector<std::string>{__FILE__, of_source(), of_header()}; });
}
"""
B = """#include "own.h"
int scaled(int value) { return SCALE * value; }
const char* of_source() { return __FILE__; }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "setup.py").write_text(SETUP)
    for name, text in {"own.h": HEADER, "a.cpp": A, "b.cpp": B}.items():
        (tmp_path / "src" / name).write_text(text)
    return tmp_path


def setup(
    daemon: Daemon | None, folder: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run ``setup.py build_ext --inplace``; without a daemon, none can be started."""
    environment = {key: value for key, value in os.environ.items() if key != "WARMCC_FALLBACK"}
    if daemon is not None:
        environment |= {**daemon.environment, "WARMCC_FALLBACK": "0"}
    warmcc = [sys.executable, "-m", "warmcc.client.cli", "exec", "--"]
    return subprocess.run(
        [*warmcc, sys.executable, "setup.py", "build_ext", "--inplace", "--force"],
        cwd=folder, env=environment | variables, capture_output=True, text=True, timeout=280,
    )  # fmt: skip


def answer(folder: Path) -> int:
    """What the built module makes of 2."""
    return int(said(folder, "pack_c.scaled(2)"))


def said(folder: Path, expression: str) -> str:
    """What the built module says, in a new process."""
    argv = [sys.executable, "-c", f"import torch, pack_c; print({expression})"]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=True).stdout


def counts(daemon: Daemon) -> tuple[int, int]:
    found = daemon.status()["requests"]
    return int(found["hits"]), int(found["misses"])


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_first_package_finds_what_was_made_when_the_daemon_was_idle(folder: Path) -> None:
    """Python's own flags and torch's folders by -I, as torch's ``BuildExtension`` has them."""
    for name in ("a.cpp", "b.cpp"):
        source = folder / "src" / name
        source.write_text(f"#include <torch/extension.h>\n{source.read_text()}")
    daemon = Daemon(prewarm=None, prewarm_idle=["setup.py"], lean=False, ccache=False)
    try:
        daemon.start()
        warm = [sys.executable, "-m", "warmcc.client.cli", "warm", "--idle"]
        subprocess.run(warm, env={**os.environ, **daemon.environment}, check=True, timeout=900)
        before = daemon.status()
        done = setup(daemon, folder)
        assert done.returncode == 0 and answer(folder) == 6, done.stdout + done.stderr
        after = daemon.status()
        used = [one["accelerators"]["pch"]["used"] for one in (before, after)]
        assert used[1] == used[0] + 2
        assert len(after["profiles"]) == len(before["profiles"])
        daemon.stop()
    finally:
        daemon.discard()


def test_a_setup_py(daemon: Daemon, folder: Path) -> None:
    hits, misses = counts(daemon)
    first = setup(daemon, folder)
    assert first.returncode == 0, first.stdout + first.stderr
    assert counts(daemon) == (hits, misses + 2)
    assert "[2/2] " in first.stdout and "src/b.cpp" in first.stdout
    assert answer(folder) == 6

    again = setup(daemon, folder)
    assert again.returncode == 0, again.stdout + again.stderr
    assert counts(daemon) == (hits + 2, misses + 2)
    assert again.stdout.count("[reused]") == 2

    (folder / "src" / "b.cpp").write_text(B.replace("SCALE *", "1 + SCALE *"))
    edited = setup(daemon, folder)
    assert edited.returncode == 0, edited.stdout + edited.stderr
    assert counts(daemon) == (hits + 3, misses + 3)
    assert answer(folder) == 7

    (folder / "src" / "b.cpp").write_text(B + "nonsense\n")
    wrong = setup(daemon, folder)
    assert wrong.returncode != 0
    assert "src/b.cpp" in wrong.stderr and "nonsense" in wrong.stderr, wrong.stderr


@pytest.mark.slow
def test_a_setup_py_that_uses_no_ninja(daemon: Daemon, folder: Path) -> None:
    """One command after the other, by gcc, with names relative to the folder."""
    text = SETUP.replace("BuildExtension}", "BuildExtension.with_options(use_ninja=False)}")
    (folder / "setup.py").write_text(text)
    hits, misses = counts(daemon)
    first = setup(daemon, folder)
    assert first.returncode == 0, first.stdout + first.stderr
    assert counts(daemon) == (hits, misses + 2)
    assert answer(folder) == 6
    again = setup(daemon, folder)
    assert again.returncode == 0, again.stdout + again.stderr
    assert counts(daemon) == (hits + 2, misses + 2)
    (folder / "src" / "b.cpp").write_text(B + "nonsense\n")
    wrong = setup(daemon, folder)
    assert wrong.returncode == 1
    assert "error: Error building extension 'b.o'" in wrong.stderr
    assert "nonsense" in wrong.stderr and "Traceback" not in wrong.stderr


@pytest.mark.slow
def test_a_compiler_that_is_not_understood(folder: Path, daemon: Daemon) -> None:
    """Flags that the daemon has no key for are stock's."""
    before = counts(daemon)
    text = SETUP.replace("define_macros", 'extra_compile_args=["-save-temps"], define_macros')
    (folder / "setup.py").write_text(text)
    done = setup(daemon, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert counts(daemon)[1] == before[1]
    assert list(folder.rglob("*.ii")), "stock compiled it"


@pytest.mark.slow
@pytest.mark.parametrize("ninja", [True, False])
def test_objects_are_stocks(daemon: Daemon, folder: Path, ninja: bool) -> None:
    """Also in what they call themselves: without ninja by relative paths. Where g++ optimises, it
    inlines a few functions otherwise behind a finished PCH (docs/internals/decisions.md)."""
    text = SETUP.replace("BuildExtension}", f"BuildExtension.with_options(use_ninja={ninja})}}")
    text = text.replace("define_macros", 'extra_compile_args=["-O0"], define_macros')
    (folder / "setup.py").write_text(text)
    before = counts(daemon)[1]
    assert setup(daemon, folder).returncode == 0
    assert counts(daemon)[1] == before + 2
    ours = {path.name: code_of(path, own=True) for path in folder.rglob("build/**/*.o")}
    assert len(ours) == 2
    files = said(folder, "pack_c.files()")
    assert ("src/b.cpp" in files) and (str(folder) in files) == ninja
    stock = setup(None, folder, WARMCC_DISABLE="1")
    assert stock.returncode == 0 and "[reused]" not in stock.stdout
    assert ours == {path.name: code_of(path, own=True) for path in folder.rglob("build/**/*.o")}
    assert said(folder, "pack_c.files()") == files


def test_the_way_back(folder: Path) -> None:
    done = setup(None, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Stock torch builds this extension instead" in done.stderr
    assert answer(folder) == 6

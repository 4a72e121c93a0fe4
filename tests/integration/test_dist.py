"""The wheel: all that warmcc needs is in it, and it works where there is no checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import warmcc

TOP = Path(warmcc.__file__).parents[1]
PACKAGES = ("warmcc", "client", "daemon", "systemd")

BUILD = """
import warmcc
assert "site-packages" in warmcc.__file__, warmcc.__file__
module = warmcc.load_inline(
    "installed", 'extern "C" int answer() { return 42; }', is_python_module=False,
    no_implicit_headers=True,
)
import ctypes
print(ctypes.CDLL(module).answer() if isinstance(module, str) else "loaded")
"""


def run(*words: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [*map(str, words)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is left in the checkout."""
    folder = tmp_path_factory.mktemp("dist")
    copy = folder / "checkout"
    copy.mkdir()
    for name in (*PACKAGES, "tests", "benchmarks"):
        shutil.copytree(
            TOP / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(TOP / name, copy / name)
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        folder,
        ".",
        cwd=copy,
    )
    (made,) = folder.glob("*.whl")
    return made


@pytest.mark.slow
def test_everything_is_in_it_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        ("" if top == "warmcc" else "warmcc/") + str(path.relative_to(TOP))
        for top in PACKAGES
        for path in (TOP / top).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.is_symlink()
    }
    assert wanted - names == set()
    assert {name for name in names - wanted if ".dist-info/" not in name} == set()
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_it_works_where_there_is_no_checkout(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    packages = Path(
        run(
            python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path
        ).strip()
    )
    given = [
        path for path in sys.path if path.endswith("-packages")
    ]  # torch, and what warmcc depends on
    (packages / "dependencies.pth").write_text("\n".join([*given, ""]))
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", wheel, cwd=tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    own = {
        "WARMCC_RUNTIME_DIR": str(runtime), "WARMCC_CACHE_DIR": str(tmp_path / "cache"),
        "WARMCC_PREWARM": "[]", "WARMCC_STATE_DIR": str(tmp_path / "state"),
        "WARMCC_AUTOSTART": "1", "WARMCC_FALLBACK": "0", "WARMCC_PREWARM_CUDA": "0",
    }  # fmt: skip
    command = tmp_path / "venv" / "bin" / "warmcc"
    assert run(command, "--version", cwd=empty).startswith("warmcc ")
    try:
        assert run(python, "-c", BUILD, cwd=empty, **own).strip() in ("42", "loaded")
        assert "1 misses" in run(command, "status", cwd=empty, **own)
    finally:
        run(command, "stop", cwd=empty, **own)
    assert list(empty.iterdir()) == []

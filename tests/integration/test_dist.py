"""The sdist and the wheel: all that warmcc needs is in them, and the wheel works where there is no
checkout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import warmcc
from warmcc import config

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


# The command, which is a shell script.
COMMAND = f"warmcc-{warmcc.__version__}.data/scripts/warmcc"
# A sub-package that no list names.
ADDED = {"daemon/added_by_a_test/__init__.py", "daemon/added_by_a_test/deeper/__init__.py"}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, so that nothing is left in the checkout, with one more package."""
    copy = tmp_path_factory.mktemp("dist") / "checkout"
    copy.mkdir()
    for name in (*PACKAGES, "tests", "benchmarks"):
        shutil.copytree(
            TOP / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(TOP / name, copy / name)
    for added in sorted(ADDED):
        (copy / added).parent.mkdir(parents=True)
        (copy / added).touch()
    return copy


@pytest.fixture(scope="module")
def wheel(checkout: Path) -> Path:
    run(
        sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir",
        checkout.parent, ".", cwd=checkout,
    )  # fmt: skip
    (made,) = checkout.parent.glob("*.whl")
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
    added = {f"warmcc/{name}" for name in ADDED} | {COMMAND}
    assert {name for name in names - wanted if ".dist-info/" not in name} == added
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert "warmcc/py.typed" in names


@pytest.mark.slow
def test_the_sdist_has_what_the_wheel_is_built_from(checkout: Path, wheel: Path) -> None:
    out, backend = checkout.parent / "sdist", checkout.parent / "backend"
    (requirement,) = config.tomllib.loads((TOP / "pyproject.toml").read_text())["build-system"][
        "requires"
    ]
    run(
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--target",
        backend,
        requirement,
        cwd=out.parent,
    )
    run(
        sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", out,
        cwd=checkout, PYTHONPATH=str(backend), PYTHONWARNINGS="ignore",
    )  # fmt: skip
    (made,) = out.glob("*.tar.gz")
    with tarfile.open(made) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    packed = {
        name.removeprefix("warmcc/") if name.split("/")[1] in PACKAGES[1:] else name
        for name in zipfile.ZipFile(wheel).namelist()
        if ".dist-info/" not in name and name != COMMAND
    }
    assert packed - inside == set()
    assert {"pyproject.toml", "setup.py", "README.md", "LICENSE"} <= inside


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

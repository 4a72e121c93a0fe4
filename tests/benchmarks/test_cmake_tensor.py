"""``examples/cmake_tensor``, built by a real CMake with ``warmcc`` as its launcher and without it:
the same code, tested by its own tests.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.harness import World
from benchmarks.suites import cmake_tensor

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(cmake_tensor.cmake() is None, reason="cmake is not installed"),
]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")
    with World(prewarm="") as made:
        yield made


def built(world: World, side: cmake_tensor.Side, text: Path) -> Path:
    """A build of the files in ``text``, in a folder that both sides have at the same place."""
    folder = world.folder / "project"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(text, folder)
    cmake_tensor.configure(world, side, folder)
    cmake_tensor.run([str(cmake_tensor.cmake()), "--build", str(folder / "build")], world)
    (folder / "build").rename(world.folder / f"built-by-{side}")
    return world.folder / f"built-by-{side}"


def code(path: Path) -> str:
    """The machine code of an object, by function."""
    shown = subprocess.run(
        ["objdump", "-dr", "--no-show-raw-insn", path], capture_output=True, text=True, check=True
    ).stdout
    return re.sub(r"^.*file format.*$", "", shown, flags=re.M)


@pytest.mark.timeout(900)
def test_the_same_code_and_its_tests(world: World) -> None:
    ours = built(world, "warmcc", cmake_tensor.PROJECT)
    theirs = built(world, "stock", cmake_tensor.PROJECT)
    objects = sorted(path.relative_to(ours) for path in ours.rglob("*.cpp.o"))
    assert len(objects) >= 4
    for name in objects:
        assert code(ours / name) == code(theirs / name), name
    environment = {**os.environ, "TENSOR_OPS": str(ours / "libtensor_ops.so")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=world.folder / "project", env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    requests = world.status()["requests"]
    assert requests["misses"] >= len(objects) and not requests["failed"]


def test_compile_commands_name_the_compiler(world: World) -> None:
    """Editors read them, and know nothing of a launcher."""
    folder = world.folder / "configured"
    shutil.copytree(cmake_tensor.PROJECT, folder)
    cmake_tensor.configure(world, "warmcc", folder)
    listed = (folder / "build" / "compile_commands.json").read_text()
    assert '"command": "/' in listed and "summary.cpp" in listed

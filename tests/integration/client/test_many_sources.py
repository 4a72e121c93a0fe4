"""A package with many C++ sources: its first build makes the precompiled header with which they
begin, where that pays for itself, and the others wait for it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from torch.utils import cpp_extension

from tests.integration.client.test_launcher import bin_folder
from tests.support.daemons import Daemon
from warmcc import record
from warmcc.daemon.system.resources import processors

__all__ = ["bin_folder"]
SETUP = """
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

sources = ["src/module.cpp"] + [f"src/part{number}.cpp" for number in range(5)]
others = [f"src/part{number}.cpp" for number in range(5, COUNT - 1)]
setup(
    name="many",
    ext_modules=[
        CppExtension(name, sources, extra_compile_args=["-DSIZE=3", "LEVEL"])
        for name, sources in (("many_c", sources), ("others_c", others)) if sources
    ],
    cmdclass={"build_ext": BuildExtension.with_options(use_ninja=NINJA)},
)
"""
PART = """#include <BEGINNING>
int partNUMBER(int value) { return SIZE * value + NUMBER; }
"""
MODULE = """#include <BEGINNING>
#include <Python.h>
int part0(int); int part1(int); int part2(int); int part3(int); int part4(int);
static PyObject* sum(PyObject*, PyObject*) {
  return PyLong_FromLong(part0(1) + part1(1) + part2(1) + part3(1) + part4(1));
}
static PyMethodDef methods[] = {{"sum", sum, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "many_c", "", -1, methods};
PyMODINIT_FUNC PyInit_many_c() { return PyModule_Create(&module); }
"""


def build(
    daemon: Daemon, folder: Path, level: str, beginnings: list[str], *, ninja: bool = True
) -> list[record.Answered]:
    """Build the package, whose sources begin with these headers, those behind the sixth in another
    extension; how its units were built."""
    (folder / "src").mkdir()
    (folder / "setup.py").write_text(
        SETUP.replace("LEVEL", level)
        .replace("COUNT", str(len(beginnings)))
        .replace("NINJA", str(ninja))
    )
    (folder / "src" / "module.cpp").write_text(MODULE.replace("BEGINNING", beginnings[0]))
    for number, beginning in enumerate(beginnings[1:]):
        text = PART.replace("BEGINNING", beginning).replace("NUMBER", str(number))
        (folder / "src" / f"part{number}.cpp").write_text(text)
    begun = time.time()
    warmcc = [sys.executable, "-m", "warmcc.client.cli", "exec", "--"]
    environment = {**os.environ, **daemon.environment, "WARMCC_FALLBACK": "0", "MAX_JOBS": "2"}
    done = subprocess.run(
        [*warmcc, sys.executable, "setup.py", "build_ext", "--inplace"],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    code = "import many_c; print(many_c.sum())"
    told = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert told.stdout == "25\n", told.stderr
    lines = record.read(daemon.state_dir / "log.jsonl")
    return [one.answered for one in lines if one.answered is not None and one.time >= begun]


def waited(units: list[record.Answered]) -> int:
    return sum("precompiled header" in one.steps for one in units)


@pytest.mark.timeout(600)
def test_they_wait_for_what_helps_them(daemon: Daemon, tmp_path: Path) -> None:
    used = daemon.status()["accelerators"]["pch"]["used"]
    units = build(daemon, tmp_path, "-O1", ["c10/util/Exception.h"] * 6)
    assert len(units) == 6
    assert 1 <= waited(units) <= 2, "as many as are compiled at a time"
    assert daemon.status()["accelerators"]["pch"]["used"] == used + 5, "the first was not"


def test_without_ninja(daemon: Daemon, tmp_path: Path) -> None:
    """setuptools compiles one source after the other, by a name relative to the folder."""
    used = daemon.status()["accelerators"]["pch"]["used"]
    units = build(daemon, tmp_path, "-O1", ["c10/util/typeid.h"] * 6, ninja=False)
    assert len(units) == 6
    assert waited(units) <= 1
    assert daemon.status()["accelerators"]["pch"]["used"] == used + 5


def test_those_of_other_extensions_count(daemon: Daemon, tmp_path: Path) -> None:
    used = daemon.status()["accelerators"]["pch"]["used"]
    alike = ["c10/util/Optional.h"] * 2
    units = build(daemon, tmp_path, "-O1", [*alike, "cstdio", "cmath", "string", "vector", *alike])
    assert len(units) == 8
    assert waited(units) >= 1
    assert daemon.status()["accelerators"]["pch"]["used"] == used + 3


def test_few_sources_do_not_wait(daemon: Daemon, tmp_path: Path) -> None:
    alike = ["c10/util/ArrayRef.h"] * 3
    units = build(daemon, tmp_path, "-Og", [*alike, "cstdio", "cmath", "string"])
    assert len(units) == 6
    assert waited(units) == 0


@pytest.mark.timeout(600)
def test_launchers_whose_sources_come_one_by_one(
    daemon: Daemon, tmp_path: Path, bin_folder: Path
) -> None:
    """ninja asks for as many at a time as keep all processors busy, so that nothing else is made
    beside them."""
    folders = " ".join(f"-isystem {path}" for path in cpp_extension.include_paths())
    rule = (
        f"rule cc\n  command = warmcc g++ -O1 -DSIZE=7 -fPIC -std=c++20 {folders} -c $in -o $out\n"
    )
    count = 16 * processors()
    builds = "".join(f"build part{number}.o: cc part{number}.cpp\n" for number in range(count))
    (tmp_path / "build.ninja").write_text(rule + builds)
    for number in range(count):
        text = PART.replace("BEGINNING", "c10/util/Logging.h").replace("NUMBER", str(number))
        (tmp_path / f"part{number}.cpp").write_text(text)
    used = daemon.status()["accelerators"]["pch"]["used"]
    path = os.pathsep.join([str(bin_folder), os.environ["PATH"]])
    environment = {**os.environ, **daemon.environment, "WARMCC_FALLBACK": "0", "PATH": path}
    done = subprocess.run(
        ["ninja", f"-j{processors() + 1}"], cwd=tmp_path, env=environment, capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert len(list(tmp_path.glob("*.o"))) == count
    assert daemon.status()["accelerators"]["pch"]["used"] > used

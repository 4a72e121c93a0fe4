"""Packages of tiny variants: extensions that include nothing of torch, and say what they are."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.daemons import Daemon
from warmcc import record

SOURCE = """
#include <Python.h>
#define PASTED(one, other) one##other
#define NAMED(one, other) PASTED(one, other)
inline long answer() { static long known = {{tile}} * 100 + {{stages}}; return known; }
static PyObject* call(PyObject*, PyObject*) { return PyLong_FromLong(answer()); }
static PyMethodDef methods[] = {
    {"answer", call, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr} };
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "tiny", nullptr, -1, methods};
PyMODINIT_FUNC NAMED(PyInit_, TORCH_EXTENSION_NAME)() { return PyModule_Create(&module); }
"""
GIVEN: dict[str, Any] = {"cpp_sources": SOURCE, "no_implicit_headers": True, "entry": "answer"}
SPEC = """
name = "{name}"
cpp_files = ["tiny.cpp"]
entry = "answer"
no_implicit_headers = true

[parameters]
tile = {tiles}
stages = {stages}
"""


def spec(
    folder: Path, name: str, tiles: list[int], stages: list[int], source: str = SOURCE
) -> Path:
    """A spec file with its source."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tiny.cpp").write_text(source)
    path = folder / "spec.toml"
    path.write_text(SPEC.format(name=name, tiles=tiles, stages=stages))
    return path


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "warmcc.client.cli", "prebuild", *map(str, words)]


def run(daemon: Daemon, *words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    """``warmcc prebuild`` with these words."""
    done = subprocess.run(
        command(*words), env={**os.environ, **daemon.environment},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == code, done
    return done


def imported(folder: Path, name: str) -> Any:
    """A package as this process imports it."""
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))


def answers(package: Any) -> dict[str, int]:
    return {key: variant() for key, variant in package.variants.items()}


def answers_of(folder: Path, name: str, **variables: str) -> dict[str, int]:
    """What the variants of a package answer, in another process."""
    script = (
        f"import json, {name} as package\n"
        "print(json.dumps({key: one() for key, one in package.variants.items()}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(folder), **variables},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


def wanted(tiles: list[int], stages: list[int]) -> dict[str, int]:
    return {f"tile={tile},stages={stage}": tile * 100 + stage for tile in tiles for stage in stages}


def compiled(state_dir: Path, name: str) -> Counter[str]:
    """How often the daemon with this state folder has compiled each variant of a package."""
    lines = record.read(state_dir / "log.jsonl")
    return Counter(
        line.answered.name
        for line in lines
        if line.answered is not None
        and line.answered.outcome == "miss"
        and line.answered.name.startswith(f"{name}_")
    )

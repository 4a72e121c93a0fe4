"""Which sources include torch, as far as the launcher can tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from warmcc.client.launcher.command_line import Command, read
from warmcc.client.launcher.own_headers import include_torch

FILES = {
    "plain.cpp": '#include <vector>\n#include "own/light.h"\nint f();\n',
    "own/light.h": '#pragma once\n#include "../plain.h"\n#include "light.h"\n',
    "plain.h": "#include <string>\n",
    "direct.cpp": "#include <torch/extension.h>\n",
    "spaced.cpp": '  #  include   "ATen/ATen.h"\n',
    "pybind.cpp": "#include <pybind11/pybind11.h>\n",
    "python.cpp": "#include <Python.h>\n",
    "behind.cpp": '#include "own/heavy.h"\n',
    "own/heavy.h": "#include <c10/macros/Macros.h>\n",
    "angle.cpp": "#include <heavy.h>\n",
    "macro.cpp": "#define H <torch/all.h>\n#include H\n",
    "comment.cpp": "// torch/extension.h\nint f();\n",
    "latin.cpp": "// \xe9\n#include <vector>\n",
}


def command(folder: Path, source: str, *flags: str) -> Command:
    words = ["-c", str(folder / source), "-o", "a.o", "-I", str(folder / "own"), "-I/torch", *flags]
    return read(words, is_nvcc=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="latin-1")
    return tmp_path


@pytest.mark.parametrize("source", ["plain.cpp", "comment.cpp", "latin.cpp"])
def test_without_torch(source: str, folder: Path) -> None:
    assert not include_torch(command(folder, source))


@pytest.mark.parametrize(
    "source",
    ["direct.cpp", "spaced.cpp", "pybind.cpp", "python.cpp", "behind.cpp", "angle.cpp",
     "macro.cpp"],
)  # fmt: skip
def test_with_torch(source: str, folder: Path) -> None:
    assert include_torch(command(folder, source))


def test_what_cannot_be_told(folder: Path) -> None:
    assert include_torch(command(folder, "missing.cpp"))
    assert include_torch(command(folder, "plain.cpp", "-include", str(folder / "own" / "heavy.h")))
    for number in range(80):
        (folder / f"h{number}.h").write_text(f'#include "h{number + 1}.h"\n')
    (folder / "many.cpp").write_text('#include "h0.h"\n')
    assert include_torch(command(folder, "many.cpp"))

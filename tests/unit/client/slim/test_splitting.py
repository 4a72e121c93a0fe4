"""The text of a half that is taken, with a real compiler and a torch of one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from warmcc.client.slim.compiling import NotCompiled
from warmcc.client.slim.index import Index
from warmcc.client.slim.parts import Part
from warmcc.client.slim.search import Found, Unit
from warmcc.client.slim.splitting import first_that_compiles
from warmcc.client.stock.replay import Command, Plan

WORKS = '#include "own.h"\nint f(own) { return 1; }\n'
NEEDS_MORE = "int f(own) { return 1; }\n"


def first(folder: Path, *texts: str) -> Part:
    header = folder / "include" / "torch" / "types.h"
    header.parent.mkdir(parents=True)
    header.write_text("#pragma once\nusing own = int;\n")
    (folder / "own.h").write_text("#include <torch/types.h>\n")
    source = str(folder / "unit.cpp")
    words = ("g++", f"-I{folder}", f"-isystem{folder}/include", "-c", source, "-o", "unit.o")
    command = Command(words, folder, source, "unit.o")
    plan = Plan(folder, {"PATH": os.environ["PATH"]}, "", (command,), {}, (), True)
    part = Part(command, Unit("unit.cpp", "", folder=folder), source, Found(None), "")
    index = Index([folder / "include"])
    return first_that_compiles(part, texts, plan, index, False, lambda _text: None)


def test_what_is_not_searched_must_compile_as_well(tmp_path: Path) -> None:
    """A header of the user's brings torch along, so that nothing is looked for."""
    found = first(tmp_path, f'#include "own.h"\n{NEEDS_MORE.replace("own", "unknown")}', WORKS)
    assert found.unit.text == WORKS and "no header of torch itself" in found.found.why_not
    assert found.found.code is not None and found.found.code.defined == {"_Z1fi"}


def test_the_last_mistake_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotCompiled, match="own"):
        first(tmp_path, "nonsense\n", NEEDS_MORE)

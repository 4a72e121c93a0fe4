"""Which errors behind the lean prelude are nvcc's as well, whatever else torch's headers say."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from warmcc.daemon.closure.closure import Closure
from warmcc.daemon.cuda.unit_text import certain
from warmcc.daemon.cuda.warm.host_pch import HostPrelude, Making
from warmcc.daemon.cuda.warm.level import Level
from warmcc.daemon.cuda.warm.profile import CudaProfile
from warmcc.daemon.system.runner import Finished

NAME = (
    'cuda.cu(4): error: identifier "undefined_name" is undefined\n'
    "      y = undefined_name;\n          ^\n"
)
SYNTAX = 'cuda.cu(9): error: expected a ";"\n      return y;\n      ^\n'
TYPE = "cuda.cu(8): error: no suitable conversion function exists\n"
TEXT = "__global__ void k(float* y) { *y = undefined_name }\n"
COUNT = '\n1 error detected in the compilation of "cuda.cu".\n'


HEADER = "struct Tensor { void mentioned_somewhere(); };\n#define MACRO Tensor\n"


class Commands:
    """Runs them, as the daemon's runner does."""

    async def run(self, words: list[str], *, cwd: Path, **_: Any) -> Finished:
        done = subprocess.run(words, cwd=cwd, capture_output=True, text=True)
        return Finished(done.returncode, done.stdout + done.stderr)


def is_certain(
    folder: Path, output: str, text: str = TEXT, *, is_made: bool = True, headers: str = HEADER
) -> bool:
    header = folder / "Tensor.h"
    header.write_text(headers)
    nothing: Any = None
    toolchain: Any = SimpleNamespace(owns=lambda path: path == str(header))
    options = ("g++", "-E", "-x", "c++", f"-I{folder}")
    plan: Any = SimpleNamespace(preprocess=SimpleNamespace(options=options))
    profile = CudaProfile("key", toolchain, [], True, ("Tensor.h",), (), plan, "", {})
    if is_made:
        profile.host = HostPrelude(
            header, frozenset(), [], Closure(), frozenset({str(header)}), frozenset(),
            Making.done("digest"),
        )  # fmt: skip
    level = Level(
        "lean", "maker", (), folder, [], nothing, nothing, {}, lacking=frozenset({"MACRO"})
    )
    runner: Any = Commands()
    return asyncio.run(certain.is_certain(profile, level, text, output, runner))


@pytest.mark.parametrize(
    "output",
    [
        NAME,
        NAME + COUNT,
        SYNTAX,
        'cuda.cu(3): warning #177-D: variable "i" was declared but never referenced\n'
        + NAME
        + SYNTAX,
        'cuda.cu(4): error #20: identifier "undefined_name" is undefined\n',
        "folder with (parentheses)/cuda.cu(4): error: expected an expression\n",
    ],
)
def test_certain(output: str, tmp_path: Path) -> None:
    assert is_certain(tmp_path, output)


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (NAME + TYPE, TEXT),
        (TYPE, TEXT),
        (NAME.replace("undefined_name", "Tensor"), TEXT),
        (NAME.replace("undefined_name", "mentioned"), TEXT),  # a macro may paste it together
        (NAME, TEXT + "MACRO\n"),
        (NAME, "namespace at { " + TEXT + "}\n"),
        (NAME, "namespace torch::nn { " + TEXT + "}\n"),
        ("{}/Tensor.h(1): error: expected a \";\"\n", TEXT),
        ('cuda.cu(4): fatal error: expected a ";"\n', TEXT),
        ('cuda.cu(4): internal error: expected a ";"\n', TEXT),
        ('cuda.cu(4): error: namespace "at" has no member "undefined_name"\n', TEXT),
        ("cudafe++ died due to signal 11\n", TEXT),
        ("", TEXT),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_made", [True, False])
def test_uncertain(output: str, text: str, is_made: bool, tmp_path: Path) -> None:
    output = output.replace("{}", str(tmp_path))
    assert not is_certain(tmp_path, output, text, is_made=is_made)


def test_what_is_certain_before_the_text_of_the_headers_is_there(tmp_path: Path) -> None:
    assert is_certain(tmp_path, SYNTAX, is_made=False)
    assert is_certain(tmp_path, NAME, is_made=False)
    assert is_certain(tmp_path, SYNTAX + NAME, is_made=False)


def test_a_name_that_macros_put_together(tmp_path: Path) -> None:
    pasted = "#define PASTED(a, b) a##b\nint PASTED(undefined_, name);\n"
    assert not is_certain(tmp_path, NAME, is_made=False, headers=pasted)


def test_headers_that_cannot_be_preprocessed(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"Tensor\.h cannot be preprocessed"):
        is_certain(tmp_path, NAME, is_made=False, headers="#error no\n")


def test_a_namespace_that_is_used_is_not_reopened(tmp_path: Path) -> None:
    assert is_certain(
        tmp_path, NAME, "using namespace torch;\nnamespace f = at::indexing;\n" + TEXT
    )

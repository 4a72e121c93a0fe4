"""Which errors behind the lean prelude are nvcc's as well, whatever else torch's headers say."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from warmcc.daemon.closure.closure import Closure
from warmcc.daemon.cuda.unit_text import certain
from warmcc.daemon.cuda.warm import level as levels
from warmcc.daemon.cuda.warm.host_pch import HostPrelude, Making
from warmcc.daemon.cuda.warm.host_text import Said
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


INCLUDE = "#include <Tensor.h>\n"
HEADER = "struct Tensor { void mentioned_somewhere(); };\n#define MACRO Tensor\n"


class Commands:
    """Runs them, as the daemon's runner does."""

    async def run(self, words: list[str], *, cwd: Path, **_: Any) -> Finished:
        done = subprocess.run(words, cwd=cwd, capture_output=True, text=True)
        return Finished(done.returncode, done.stdout + done.stderr)


CALL = (
    'cuda.cu(2): error: calling a __host__ function("only_host(int)") from a __global__ '
    'function("k") is not allowed\n'
)
UNDEFINED = 'cuda.cu(2): error: identifier "only_host(int)" is undefined in device code\n'
CALLS = "void only_host(int);\n__global__ void k() { only_host(1); }\n"


def is_certain(
    folder: Path, output: str, text: str = TEXT, *, is_made: bool = True, headers: str = HEADER,
    on_devices: bool = False, begins: str = INCLUDE, folders: Sequence[str] = (),
    prologue: str = "",
) -> bool:  # fmt: skip
    """``headers`` is what the unit includes, and its text behind the lean prelude has nothing."""
    header = folder / "Tensor.h"
    header.write_text(headers)
    (folder / "front").mkdir(exist_ok=True)
    (folder / "front/Tensor.h").write_text("\n")
    nothing: Any = None
    toolchain: Any = SimpleNamespace(owns=lambda path: path == str(header))
    options = ("g++", "-E", "-x", "c++", "-isystem", str(folder))
    device = SimpleNamespace(
        architecture="90", preprocess=SimpleNamespace(options=(*options, "-D__CUDA_ARCH__=900"))
    )
    plan: Any = SimpleNamespace(preprocess=SimpleNamespace(options=options), devices=(device,))
    profile = CudaProfile("key", toolchain, [], True, ("Tensor.h",), (), plan, "", {})
    profile.folders = folders
    if is_made:
        profile.host = HostPrelude(
            header, frozenset(), [], Said(""), Closure(), frozenset({str(header)}), frozenset(),
            Making.done("digest"),
        )  # fmt: skip
    front = [str(folder / "front")]
    level = Level("lean", "maker", (), folder / "levels/lean", front, nothing, nothing, {})
    runner: Any = Commands()
    level.folder.mkdir(parents=True, exist_ok=True)
    place = folder / "unit"
    levels.place_unit(place, f"#define TORCH_EXTENSION_NAME x\n{prologue}", "cuda.cu")
    (place / "cuda.cu").write_text(begins + text)
    lean = ["g++", "-E", "-x", "c++", "-isystem", *front, *options[4:]]
    subprocess.run([*lean, levels.UNIT, "-o", levels.TEXT], cwd=place, check=True)
    unit = certain.Unit(profile, level, "", begins + text, runner, place)
    ask = certain.is_certain_for_devices if on_devices else certain.is_certain
    return asyncio.run(ask(unit, output))


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


BEGINNINGS = [
    "#define IT 1\n" + INCLUDE,
    INCLUDE + "int x;\n#include <vector>\n",
    '#include "Tensor.h"\n',
    INCLUDE + "#ifdef IT\n#include <vector>\n#endif\n",
    '#pragma once\n#include "own.cuh"\n',
]


@pytest.mark.parametrize("begins", BEGINNINGS)
def test_headers_that_do_not_all_stand_in_front(begins: str, tmp_path: Path) -> None:
    """The unit's own lines are compared."""
    (tmp_path / "unit").mkdir()
    (tmp_path / "unit/own.cuh").write_text(INCLUDE + "inline int of_its_own;\n")
    assert is_certain(tmp_path, NAME, begins=begins)
    assert is_certain(tmp_path, SYNTAX, begins=begins)
    assert not is_certain(tmp_path, NAME, TEXT + "MACRO\n", begins=begins)
    assert not is_certain(tmp_path, SYNTAX, TEXT + "MACRO\n", begins=begins)
    assert not is_certain(tmp_path, NAME + TYPE, begins=begins)
    assert not is_certain(tmp_path, NAME, "namespace at { " + TEXT + "}\n", begins=begins)
    for mentioned in ("Tensor", "mentioned"):
        output = NAME.replace("undefined_name", mentioned)
        assert not is_certain(tmp_path, output, begins=begins)


@pytest.mark.parametrize(
    "headers",
    [
        HEADER + "#ifndef IT\nvoid undefined_name();\n#endif\n",
        "#define PASTED(a, b) a##b\nint PASTED(undefined_, name);\n",
        "#ifdef __CUDA_ARCH__\n#else\n#error not for the host\n#endif\n",
    ],
)
def test_headers_behind_other_lines_may_mend_it(headers: str, tmp_path: Path) -> None:
    assert not is_certain(tmp_path, NAME, begins="int first;\n" + INCLUDE, headers=headers)


def test_an_include_of_the_overlay_is_not_the_units(tmp_path: Path) -> None:
    """It stands in front of the unit as the lean preprocessor gets it."""
    (tmp_path / "unit").mkdir()
    (tmp_path / "unit/own.cuh").write_text("inline int of_its_own;\n")
    begins = '#include "own.cuh"\n'
    output = NAME.replace("undefined_name", "Tensor")
    assert is_certain(tmp_path, output, begins=begins, prologue=INCLUDE)
    assert not is_certain(tmp_path, output, begins=begins + INCLUDE, prologue=INCLUDE)


def test_headers_that_may_be_the_callers(tmp_path: Path) -> None:
    assert is_certain(tmp_path, NAME, folders=["/callers"])
    assert not is_certain(tmp_path, NAME, TEXT + "MACRO\n", folders=["/callers"])


def test_what_the_unit_includes_counts_and_not_what_the_prelude_has(tmp_path: Path) -> None:
    assert is_certain(tmp_path, NAME.replace("undefined_name", "Tensor"), begins="")
    assert is_certain(tmp_path, NAME, "MACRO\n", begins="")


def test_a_macro_that_the_unit_includes_in_both_ways(tmp_path: Path) -> None:
    (tmp_path / "both.h").write_text("#define BOTH 1\n#undef MACRO\n")
    text = TEXT + "BOTH MACRO\n"
    assert is_certain(tmp_path, NAME, text, begins=INCLUDE + "#include <both.h>\n")
    assert not is_certain(tmp_path, NAME, text)


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


@pytest.mark.parametrize("output", [CALL, UNDEFINED, CALL + UNDEFINED + COUNT])
def test_a_host_function_in_device_code(output: str, tmp_path: Path) -> None:
    assert is_certain(tmp_path, output, CALLS, on_devices=True)


@pytest.mark.parametrize(
    ("output", "text", "headers"),
    [
        (CALL + TYPE, CALLS, HEADER),
        (NAME, CALLS, HEADER),
        ("cicc died due to signal 11\n", CALLS, HEADER),
        (CALL.replace("only_host(int)", "at::only_host(int)"), CALLS, HEADER),
        (CALL.replace("only_host(int)", "A::only_host(int)"), CALLS, HEADER),
        (CALL, "namespace at { " + CALLS + "}\n", HEADER),
        (CALL, CALLS + "MACRO\n", HEADER),
        (CALL, CALLS, "void only_host(float);\n"),
        (CALL, CALLS, "#ifdef __CUDA_ARCH__\nvoid only_host(float);\n#endif\n"),
        (CALL, CALLS + "FOR_DEVICES\n", "#ifdef __CUDA_ARCH__\n#define FOR_DEVICES\n#endif\n"),
    ],
)
def test_what_other_headers_could_mend_on_devices(
    output: str, text: str, headers: str, tmp_path: Path
) -> None:
    assert not is_certain(tmp_path, output, text, headers=headers, on_devices=True)

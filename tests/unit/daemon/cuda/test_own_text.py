"""A unit's own text: its headers are in place of the lines that include them."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest

from tests.support.calls import interpreter, request
from warmcc.daemon.cuda.unit_text import eligibility, own_text
from warmcc.daemon.plan import requested
from warmcc.daemon.toolchain.identity import Toolchains

HEADERS = {
    "plain.cuh": '#pragma once\n#include "plain.cuh"\n#include <cuda_runtime.h>\nint plain;\n',
    "deep.cuh": '#include "plain.cuh"\n#include "sub/between.cuh"\n',
    "sub/between.cuh": '#include "extension.cuh"\n',
    "sub/extension.cuh": "int y;\n#include <torch/extension.h>\n",
    "given/mine/extension.cuh": "#include <ATen/ATen.h>\n#define GIVEN 1\n",
    "large.h": "int z;\n" * (1 << 18),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in HEADERS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    return tmp_path


def expanded(text: str, folder: Path) -> own_text.OwnText:
    return own_text.of(text, str(folder), [str(folder / "given")], [str(folder / "theirs")])


@pytest.mark.parametrize(
    ("text", "has_torch"),
    [
        ('#include "plain.cuh"', False),
        ('#include "deep.cuh"', True),
        ('#include "plain.cuh"\nint x;\n#include "sub/extension.cuh"\n', True),
        ("#include <mine/extension.cuh>", True),  # in a folder of -I
        ('#include "missing.h"\n#include <vector>\n', False),
    ],
)
def test_torch_may_come_by_way_of_a_header_of_the_users(
    text: str, has_torch: bool, folder: Path
) -> None:
    found = expanded(text, folder)
    assert not found.why_partial
    assert eligibility.has_torch(found.text) is has_torch


def test_each_header_stands_once_where_it_is_first_included(folder: Path) -> None:
    found = expanded('int a;\n#include "plain.cuh"\nint b;\n#include "deep.cuh"\nint c;\n', folder)
    words = [word for word in found.text.split() if word.endswith(";")]
    assert words == ["a;", "plain;", "b;", "y;", "c;"]
    assert found.text.count("#include") == 2, "those of the toolchain stay"


@pytest.mark.parametrize(
    "text", ['#include "large.h"', "#define H <torch/types.h>\n#include H\n", "#include_next <x.h>"]
)
def test_what_cannot_be_looked_into_is_told(text: str, folder: Path) -> None:
    assert expanded(text, folder).why_partial


def test_a_copy_of_a_header_of_the_toolchain_is_the_toolchains(folder: Path) -> None:
    for place in ("given", "theirs"):
        (folder / place).mkdir(exist_ok=True)
        (folder / place / "copied.h").write_text("int copied;\n")
    text = "#include <copied.h>\nint own;\n"
    assert expanded(text, folder).text == text
    (folder / "given/copied.h").write_text("int changed;\n")
    assert "int changed;" in expanded(text, folder).text


def test_what_is_for_rocm_alone_is_left_out(folder: Path) -> None:
    text = "#if defined(USE_ROCM)\n#define R 1\n#else\n#define C 1\n#endif\n#include <x>\n"
    assert eligibility.early(expanded(text, folder).text) == {"C"}
    unfinished = text.replace("#endif\n", "")
    assert eligibility.early(expanded(unfinished, folder).text) == {"C", "R"}
    assert eligibility.early(expanded("// #define R\n#include <x>\n", folder).text) == set()


_FALLBACK = "#ifndef TORCH_CHECK\n#define TORCH_CHECK AT_CHECK\n#endif\n"


def test_what_is_for_an_old_torch_alone_is_left_out(folder: Path) -> None:
    (folder / "given/compat.h").write_text(f"#pragma once\n{_FALLBACK}#define GIVEN\n")
    text = '#include <ATen/ATen.h>\n#include "compat.h"\n#include <ATen/Dispatch.h>\n'
    found = expanded(text, folder).text
    assert eligibility.early(found) == {"GIVEN"}
    assert "TORCH_CHECK" not in eligibility.asked(found)
    assert own_text.alone(f"#include <torch/types.h>\n{_FALLBACK}").text.count("\n") == 1


@pytest.mark.parametrize(
    "text",
    [
        f"{_FALLBACK}#include <torch/types.h>\n",
        f"#if defined(OLD)\n#include <torch/types.h>\n#endif\n{_FALLBACK}",
        f"#include <torch/headeronly/macros/Macros.h>\n{_FALLBACK}",
        "#include <torch/types.h>\n#ifndef TORCH_CHECK\n#define TORCH_CHECK A\n#else\n"
        "#define OTHER\n#endif\n",
        "#include <torch/types.h>\n#define TORCH_CHECK A\n",
        f"#include <torch/types.h>\n{_FALLBACK.replace('AT_CHECK', chr(92) + chr(10) + 'A')}",
    ],
    ids=["in front", "perhaps", "without it", "with another way", "always", "spliced"],
)
def test_what_may_be_for_this_torch_stays(text: str, folder: Path) -> None:
    text += "#include <ATen/ATen.h>\n"
    assert expanded(text, folder).text == text
    assert "TORCH_CHECK" in eligibility.early(text)


def test_no_header_is_looked_into_where_the_daemon_may_not_read_it() -> None:
    assert own_text.alone('#include "mine.h"\n').why_partial
    assert not own_text.alone("#include <torch/types.h>\n#include <vector>\n").why_partial


def test_macros_in_front_of_headers_are_known(folder: Path) -> None:
    text = "#define FIRST\n#include <mine/extension.cuh>\n#include <torch/types.h>\n#define LAST\n"
    assert eligibility.early(expanded(text, folder).text) == {"FIRST", "GIVEN"}


def test_conditions_ask_for_what_the_unit_does_not_define(folder: Path) -> None:
    text = "#include <mine/extension.cuh>\n#if defined(GIVEN) && OTHER > 2\n#endif\n"
    own = expanded(text, folder).text
    assert eligibility.asked(own) == {"OTHER"}
    assert eligibility.why_not_lean(own) == "a condition on OTHER may depend on headers"
    assert eligibility.why_not_lean(own, set()) is None


def test_cudas_libraries_beside_torch_are_no_users(tmp_path: Path) -> None:
    """Their headers are like the toolkit's: without a full toolkit, callers name their folders."""
    libraries = tmp_path / "nvidia" / "cu13" / "include"
    libraries.mkdir(parents=True)
    asked = request(extra_include_paths=[str(libraries), str(tmp_path / "own")])
    environment = requested.build_environment(asked)
    toolchain = asyncio.run(Toolchains().identify(environment, "c++", interpreter()))
    beside = dataclasses.replace(toolchain, torch_dir=str(tmp_path / "torch"))
    assert own_text.searched(asked, toolchain)[-2:] == [str(libraries), str(tmp_path / "own")]
    assert own_text.searched(asked, beside)[-1:] == [str(tmp_path / "own")]
    assert str(libraries) not in own_text.searched(asked, beside)

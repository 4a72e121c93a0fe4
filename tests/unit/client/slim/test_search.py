"""The search, with a real compiler and a torch of a few lines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from warmcc.client.slim.compiling import Compiler, NotCompiled
from warmcc.client.slim.index import Index
from warmcc.client.slim.search import Found, Search, Unit
from warmcc.client.stock.replay import Command

HEADERS = {
    "c10/util/Exception.h": "#define TORCH_CHECK(c, ...) do { if (!(c)) throw __LINE__; } while (0)"
    "\n",
    "c10/util/odd.h": "namespace c10 {\ninline int odd_one(int x) {\n  return x + 1;\n}\n}\n",
    "c10/util/of.h": "template <class T> struct Of { static int size() { return 1; } };\n",
    "c10/util/special.h": "#include <c10/util/of.h>\n"
    "template <> struct Of<int> { static int size(); };\n",
    "ATen/core/Tensor.h": "#include <c10/util/Exception.h>\n"
    "namespace at { struct Tensor { long dim() const; Tensor sum() const; }; }\n",
    "ATen/ops/empty.h": "#include <ATen/core/Tensor.h>\n"
    "namespace at { Tensor empty(long size); }\n",
    "ATen/TensorOperators.h": "#include <ATen/core/Tensor.h>\n"
    "namespace at { Tensor operator+(const Tensor& a, const Tensor& b); }\n",
    "torch/types.h": "#include <ATen/ops/empty.h>\n#include <ATen/TensorOperators.h>\n"
    "namespace torch { using namespace at; }\n",
    "c10/util/feature.h": "#ifdef __cpp_lib_optional\n#define FEATURE 1\n#else\n#define FEATURE 0\n"
    "#endif\nnamespace c10 {\ninline int feature_of() {\n  return FEATURE;\n}\n}\n",
    "torch/csrc/utils/pybind.h": "",
    "torch/extension.h": "#include <torch/types.h>\n#include <vector>\n#include <c10/util/odd.h>\n"
    "#include <c10/util/special.h>\n#include <optional>\n#include <c10/util/feature.h>\n",
}


@pytest.fixture
def include(tmp_path: Path) -> Path:
    folder = tmp_path / "include"
    for name, text in HEADERS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("#pragma once\n" + text)
    return folder


def search(include: Path, text: str, *, aliases: bool = False, before: str = "") -> Found:
    folder = include.parent / "work"
    folder.mkdir(exist_ok=True)
    source = str(folder / "unit.cpp")
    words = ("g++", f"-isystem{include}", "-std=c++17", "-c", source, "-o", "unit.o")
    compiler = Compiler(Command(words, folder, source, "unit.o"), {"PATH": os.environ["PATH"]})
    unit = Unit("unit.cpp", text, before, folder=include.parent)
    return Search(unit, compiler, Index([include]), aliases=aliases, say=lambda _text: None).run()


def headers(found: Found) -> tuple[str, ...]:
    assert found.block is not None, found.why_not
    return found.block.headers


def test_the_few_that_names_need(include: Path) -> None:
    text = (
        "#include <torch/extension.h>\nlong f(const at::Tensor& x, std::vector<int> v) {\n"
        "  TORCH_CHECK(x.dim() > 1, 1);\n  return x.dim();\n}\n"
    )
    found = search(include, text)
    assert headers(found) == ("ATen/core/Tensor.h", "vector")
    assert found.text(Unit("unit.cpp", text)).startswith("#include <ATen/core/Tensor.h>\n")


def test_stocks_own_header_is_replaced(include: Path) -> None:
    text = "at::Tensor f() { return at::empty(3); }\n"
    found = search(include, text, before="#include <torch/extension.h>\n")
    assert headers(found) == ("ATen/ops/empty.h",)


def test_what_only_the_compiler_misses_is_added(include: Path) -> None:
    text = (
        "#include <torch/extension.h>\nusing namespace c10;\nint f() { return odd_one(1); }\n"
        "at::Tensor g(at::Tensor x) { return x + x; }\n"
    )
    assert headers(search(include, text)) == ("ATen/TensorOperators.h", "c10/util/odd.h")


def test_torchs_names_need_a_line_or_its_types(include: Path) -> None:
    text = "#include <torch/extension.h>\nlong f(const torch::Tensor& x) { return x.dim(); }\n"
    assert headers(search(include, text)) == ("torch/types.h",)
    found = search(include, text, aliases=True)
    assert headers(found) == ("ATen/core/Tensor.h",)
    assert found.block is not None
    assert found.block.lines == ("namespace torch { using namespace at; }",)


def test_other_code_is_not_proposed(include: Path) -> None:
    """The text compiles with the first header that has the name, and means something else."""
    text = (
        "#include <torch/extension.h>\n"
        "template <class T> int sized() { return Of<T>::size(); }\n"
        "int f() { return sized<int>(); }\n"
    )
    found = search(include, text)
    assert found.block is None
    assert "other code comes of int sized<int>(), Of<int>::size()" in found.why_not


def test_features_of_the_standard_library_are_those_that_were_seen(include: Path) -> None:
    """A header of torch's has other code where nothing told it of them."""
    text = (
        "#include <torch/extension.h>\n"
        "template <int N> int made() { return N; }\n"
        "int f() { return made<FEATURE>() + c10::feature_of(); }\n"
    )
    assert headers(search(include, text)) == ("version", "c10/util/feature.h")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("int f() { return 1; }\n", "includes no header of torch"),
        ("#ifdef X\n#include <torch/extension.h>\n#endif\n", "only under conditions"),
        ('#include "own.h"\n#include <torch/types.h>\nint f();\n', '"own.h" includes torch'),
        ("#include <ATen/core/Tensor.h>\nlong f(at::Tensor x) { return x.dim(); }\n",
         "need all that it includes"),
    ],
)  # fmt: skip
def test_where_it_cannot_it_says_why(include: Path, text: str, reason: str) -> None:
    (include.parent / "own.h").write_text("#include <ATen/core/Tensor.h>\n")
    (include.parent / "work").mkdir()
    found = search(include, text)
    assert found.block is None and reason in found.why_not


def test_a_source_that_does_not_compile_is_an_error(include: Path) -> None:
    with pytest.raises(NotCompiled, match="nonsense"):
        search(include, "#include <torch/extension.h>\nint f() { return nonsense; }\n")

"""What is read of a source, and of what compilers say of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from warmcc.client.slim import complaints
from warmcc.client.slim.text import Block, code, includes, names, numbered, rewritten

SOURCE = """\
// #include <torch/all.h>
#define N 3
/* #include <ATen/ATen.h> */
#include <torch/extension.h>
  #  include "own.h"  // with a word
#include <vector>
const char* text = "#include <no.h> at::empty";
const char* raw = R"x(
#include <neither.h>
)x";
at::Tensor f(at::Tensor x) { return x.to(torch :: kFloat) ; }
"""


def test_includes_are_those_that_a_compiler_reads() -> None:
    found = [(one.line, one.header, one.angled) for one in includes(SOURCE)]
    assert found == [(3, "torch/extension.h", True), (4, "own.h", False), (5, "vector", True)]


def test_includes_under_conditions_are_told_apart() -> None:
    text = (
        "#ifndef A_H\n#include <a.h>\n#else\n#  include <b.h>\n# if X\n#endif\n#include <c.h>\n"
        "#endif\n#include <d.h>\n// #if Y\n#include <e.h>\n"
    )
    found = [(one.header, one.conditional) for one in includes(text)]
    assert found == [
        ("a.h", True), ("b.h", True), ("c.h", True), ("d.h", False), ("e.h", False),
    ]  # fmt: skip


def test_names_are_those_of_code() -> None:
    found = names(SOURCE)
    assert {"at::Tensor", "torch::kFloat", "to", "N"} <= found
    assert not found & {"at::empty", "no", "torch::all", "neither", "vector", "word"}
    assert code(SOURCE).count("\n") == SOURCE.count("\n")


def test_a_block_takes_the_place_of_includes() -> None:
    gone = [one for one in includes(SOURCE) if one.header == "torch/extension.h"]
    block = Block(
        ("ATen/core/Tensor.h", "vector"), True, ("namespace torch { using namespace at; }",)
    )
    lines = rewritten(SOURCE, gone, block).split("\n")
    assert lines[3:7] == [
        "#define AT_PER_OPERATOR_HEADERS", "#include <ATen/core/Tensor.h>", "#include <vector>",
        "namespace torch { using namespace at; }",
    ]  # fmt: skip
    assert lines[:3] + lines[7:] == SOURCE.split("\n")[:3] + SOURCE.split("\n")[4:]


def test_lines_keep_their_numbers_for_a_comparison(tmp_path: Path) -> None:
    """As the preprocessor counts them."""
    text = "#include <a.h>\nint a = __LINE__;\n#include <b.h>\nint b = __LINE__;\n"
    made = numbered(text, includes(text), Block(("cstddef",)), "user.cpp") + "// __FILE__\n"
    place = tmp_path / "x.cpp"
    place.write_text(made)
    done = subprocess.run(
        ["g++", "-E", "-P", place], capture_output=True, text=True, check=True
    ).stdout
    assert "int a = 2;" in done and "int b = 4;" in done


def said(tmp_path: Path, text: str) -> str:
    """What g++ says of a source."""
    place = tmp_path / "x.cpp"
    place.write_text(text)
    done = subprocess.run(
        ["g++", "-fsyntax-only", "-std=c++17", place], capture_output=True, text=True,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    return done.stdout + done.stderr


def test_what_is_missing_is_read_from_real_errors(tmp_path: Path) -> None:
    output = said(
        tmp_path,
        "namespace at { struct Tensor; }\n"
        "std::vector<int> v;\n"
        "int f() { return at::empty(3) + undeclared; }\n"
        "c10::Device d;\n"
        "TORCH_LIBRARY(name, m) { m.def(1); }\n",
    )
    assert set(complaints.unknown(output)) >= {
        "std::vector", "at::empty", "undeclared", "c10", "TORCH_LIBRARY",
    }  # fmt: skip
    assert "error" in complaints.first(output)


def test_a_missing_operator_is_noticed(tmp_path: Path) -> None:
    output = said(tmp_path, "struct T {}; T f(T a, T b) { return a + b; }\n")
    assert complaints.lacks_operators(output)
    assert not complaints.lacks_operators(said(tmp_path, "int f() { return x; }\n"))


def test_an_inline_function_without_its_body_is_noticed(tmp_path: Path) -> None:
    output = said(
        tmp_path,
        "struct T { inline T operator[](int) const; inline int grown() const; };\n"
        "int f(T t) { t[0]; return t.grown(); }\n",
    )
    assert complaints.lacks_operators(output)
    assert "T::grown" in complaints.unknown(output)


def test_what_nvcc_says() -> None:
    output = (
        'x.cu(4): error: namespace "at" has no member "empty_like"\n'
        'x.cu(5): error: identifier "TORCH_CHECK" is undefined\n'
        'x.cu(6): error: no operator "+" matches these operands\n'
    )
    assert complaints.unknown(output) == ["at::empty_like", "TORCH_CHECK"]
    assert complaints.lacks_operators(output)

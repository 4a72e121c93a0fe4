"""Units that serve every module's name: what could ask for the name keeps it."""

from __future__ import annotations

import pytest

from warmcc.daemon.plan.binding import module_name

STOCKS = "#include <torch/extension.h>\n"
FLAGS = (
    "-DTORCH_EXTENSION_NAME=mine -DTORCH_API_INCLUDE_EXTENSION_H -isystem /torch/include "
    "-fPIC -std=c++20"
)
DECLARED = "at::Tensor f(at::Tensor x);\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        DECLARED,
        f"#include <vector>\n{DECLARED}",
        f"#include <ATen/cuda/CUDAContext.h>\n{DECLARED}",
    ],
)
def test_declarations_have_no_name(text: str) -> None:
    assert module_name.is_nameless(STOCKS + text, FLAGS, folders=False)


@pytest.mark.parametrize(
    "text",
    [
        "const char* name() { return XSTR(TORCH_EXTENSION_NAME); }",
        "#define JOIN(a, b) a##b\nint JOIN(TORCH_EXTENSION_, NAME);",
        "%:define JOIN(a, b) a%:%:b",
        "TORCH_EXTENSION_\\\nNAME",
        "#include <mine.h>",
        '#include "mine.h"',
        "#include HEADER",
        "#  include <vector>",
        "#/* */include <vector>",
        "#import <vector>",
        "#include <torch/../mine.h>",
        "#include <mine>",
        "#inc\\ \nlude <vector>",
        "#include <kernels/mine.h>",
        "#include_next <vector>",
        "#if __has_include(<mine.h>)\n#include <mine.h>\n#endif",
        "??=include <mine.h>",
    ],
)
def test_what_may_ask_for_it_keeps_it(text: str) -> None:
    assert not module_name.is_nameless(f"{STOCKS}{text}\n", FLAGS, folders=False)


def test_a_folder_of_the_users_may_have_any_header() -> None:
    assert module_name.is_nameless(STOCKS + DECLARED, FLAGS, folders=True)
    assert not module_name.is_nameless(
        f"{STOCKS}#include <vector>\n{DECLARED}", FLAGS, folders=True
    )


@pytest.mark.parametrize(
    "flag",
    ["-DNAME=TORCH_EXTENSION_NAME", "-include mine.h", "-Wp,-imacros,mine.h", "-D'J(a,b)=a##b'"],
)
def test_flags_may_ask_for_it(flag: str) -> None:
    assert not module_name.is_nameless(STOCKS + DECLARED, f"{FLAGS} {flag}", folders=False)


def test_the_name_goes_out_of_the_flags() -> None:
    assert module_name.without(FLAGS) == FLAGS.partition(" ")[2]
    assert module_name.without("-O2 -DTORCH_EXTENSION_NAME=a -g") == "-O2 -g"

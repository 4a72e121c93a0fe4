"""A source as its functions and its binding, by its text alone."""

from __future__ import annotations

import pytest

from warmcc.client.slim.halves import Whole, halves

MODULE = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\n  m.def("f", &f, "a { brace");\n}\n'
TOP = "#include <torch/extension.h>\n#include <vector>\n\n"


def test_the_module_goes_with_declarations_of_what_it_binds() -> None:
    found = halves(
        f"{TOP}int other() {{ return 1; }}\nint f(int x) {{ return '{{' + x; }}\n{MODULE}"
    )
    assert (
        found.functions
        == f"{TOP}int other() {{ return 1; }}\nint f(int x) {{ return '{{' + x; }}\n"
    )
    assert found.lean == f"#include <torch/extension.h>\n\nint f(int x);\n\n{MODULE}"
    assert found.binding == f"{TOP}int f(int x);\n\n{MODULE}"


def test_lines_behind_the_module_keep_their_numbers() -> None:
    text = f"{TOP}int f(int x);\n{MODULE}int f(int x) {{ return __LINE__; }}\n"
    found = halves(text)
    behind = "int f(int x) { return __LINE__; }"
    assert found.functions.split("\n").index(behind) == text.split("\n").index(behind)
    assert "int f(int x);\n" in found.binding  # it was declared in front


def test_headers_that_may_convert_something_stay() -> None:
    text = (
        '#include <torch/types.h>\n#include <pybind11/complex.h>\n#include "own.h"\n'
        f"#include <lib/own.h>\n#include <cub/cub.cuh>\n#include <cmath>\nint f();\n{MODULE}"
    )
    assert halves(text).lean.split("\n\n")[0].split("\n") == [
        "#include <torch/extension.h>", "#include <pybind11/complex.h>", '#include "own.h"',
        "#include <lib/own.h>",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("definition", "declaration"),
    [
        ("torch::Tensor f(\n    torch :: Tensor x) { return x; }",
         "at::Tensor f(\n    at::Tensor x);"),
        ("namespace a::b { int f(int x = 3) { return x; } }",
         "namespace a::b { int f(int x = 3); }"),
        ("namespace a { namespace b {\nint f() noexcept { return 1; }\n}}",
         "namespace a { namespace b { int f() noexcept; } }"),
        ('extern "C" {\nint f(int (*g)(int)) { return g(1); }\n}',
         'extern "C" { int f(int (*g)(int)); }'),
        ("auto f(int x) -> int { return x; }", "auto f(int x) -> int;"),
        ("using T = int;\nnamespace py = pybind11;\nT f(T x) { return x; }",
         "using T = int;\nnamespace py = pybind11;\nT f(T x);"),
        ("#define BRACE {\nint f(int x) { /* } */ return x; }  // }", "int f(int x);"),
        ('int f(const char* s = "){") { return *s; }', 'int f(const char* s = "){");'),
        ("int f(int x) { return x; }\nint f(double x) { return x; }",
         "int f(int x);\nint f(double x);"),
        ("int f(int x) { return x; }\nint y = f(3);", "int f(int x);"),
        ("struct S { int f() { return 1; } };\nint f(int x) { return x; }", "int f(int x);"),
    ],
)  # fmt: skip
def test_declarations(definition: str, declaration: str) -> None:
    found = halves(f"{TOP}{definition}\n{MODULE}")
    assert found.binding == f"{TOP}{declaration}\n\n{MODULE}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("int f();\n", "no PYBIND11_MODULE"),
        (f"{MODULE}{MODULE}", "2 modules"),
        (f"namespace a {{\nint f();\n{MODULE}}}", "in a namespace"),
        (f"#ifdef X\n#include <a.h>\n#endif\nint f();\n{MODULE}", "under conditions"),
        (f"#define Y 1\n#include <a.h>\nint f();\n{MODULE}", "macros before its includes"),
        (f"static int f() {{ return 1; }}\n{MODULE}", "binds f, which is static"),
        (f"template <class T> T f(T x) {{ return x; }}\n{MODULE}", "binds f, which is template"),
        (f"namespace {{ int f() {{ return 1; }} }}\n{MODULE}", "a namespace without a name"),
        (f"int g() {{ return 1; }}\n{MODULE}", "binds no function"),
        (f"PYBIND11_MAKE_OPAQUE(std::vector<int>)\nint f();\n{MODULE}", "PYBIND11_MAKE_OPAQUE"),
        (f"namespace pybind11::detail {{ struct X {{}}; }}\nint f();\n{MODULE}", "both halves"),
        (f"{MODULE}namespace py {{ template <> struct type_caster<int>; }}\n", "type_caster"),
        (f"int f() {{ return 1; }} }}\n{MODULE}", "braces do not match"),
        (f"int f() {{ return (1; }}\n{MODULE}{{", "brackets do not match"),
    ],
)  # fmt: skip
def test_where_it_stays_whole(text: str, reason: str) -> None:
    with pytest.raises(Whole, match=reason):
        halves(text)

"""Which of a caller's flags count for a unit that warmcc wrote, and which sources only declare."""

from __future__ import annotations

import pytest

from warmcc.daemon.plan.binding import neutral

STOCKS = "-DTORCH_API_INCLUDE_EXTENSION_H -isystem /torch/include -fPIC -std=c++20"


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ("", ""),
        ("-O0", ""),
        ("-O1", ""),
        ("-O2 -O3 -DN=2", " -DN=2"),
        ("-Ofast -march=native -mtune=native", ""),
        ("-O3 -O0", ""),
        ("-ffast-math -fno-math-errno -fopenmp -g -ggdb3 -gdwarf-4 -mavx2 -mfma", ""),
        ("-Wall -Werror -w", ""),
        ("-std=c++17", ""),
        ("-std=gnu++20 -O2", ""),
        # What is passed between objects, or read, stays
        ("-D_GLIBCXX_USE_CXX11_ABI=0 -U_FORTIFY_SOURCE", " -D_GLIBCXX_USE_CXX11_ABI=0"
         " -U_FORTIFY_SOURCE"),
        ("-fno-exceptions -fno-rtti -fsanitize=address", " -fno-exceptions -fno-rtti"
         " -fsanitize=address"),
        ("-mabi=ms -fshort-enums -funsigned-char", " -mabi=ms -fshort-enums -funsigned-char"),
        ("-std=c++14", " -std=c++14"),
        ("-I/mine -include /a.h", " -I/mine -include /a.h"),
    ],
)  # fmt: skip
def test_what_generates_no_other_interface_goes(given: str, left: str) -> None:
    assert neutral.flags(f"{STOCKS} {given}".strip()) == STOCKS + left


def test_a_word_with_quotes_stays_one_word() -> None:
    name = r"""-DNAME=\"a\ b\" """.strip()
    assert neutral.flags(f"{STOCKS} {name}") == f"{STOCKS} {name}"
    assert neutral.flags(f"{name} -O2 -g") == """'-DNAME="a b"'"""


def test_warnings_stay_for_a_source_of_the_users() -> None:
    assert neutral.flags("-O2 -Wall -g", warns=True) == "-Wall"


@pytest.mark.parametrize(
    ("text", "declares"),
    [
        ("at::Tensor f(at::Tensor x);", True),
        ("#include <torch/extension.h>\n#include <vector>\nstd::vector<at::Tensor> f();", True),
        ("namespace a { int f(); }", False),
        ("int f() { return 1; }", False),
        ("int f(int a = 1, double eps = -1E-5, bool b = true, int k = std::launch::async);", True),
        ("int f(int a = g(1));", False),
        ('#include "mine.h"\nint f();', False),
        ("#define f g\nint f();", False),
        ("template class std::vector<int>;", False),
        ("int f(char8_t c);", False),
        ("int f() <% return 1; %>", False),
    ],
)
def test_sources_without_code(text: str, declares: bool) -> None:
    assert neutral.only_declares(text, folders=False) is declares


def test_an_include_may_be_of_the_users_own_folder() -> None:
    assert not neutral.only_declares("#include <vector>\nint f();", folders=True)

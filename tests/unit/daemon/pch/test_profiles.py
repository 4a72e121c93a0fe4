"""Which includes begin a source, which flags share a precompiled header, and what may go behind the
lean prelude.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from warmcc.daemon.pch import flag_reduction, leading_includes, lean
from warmcc.version import __version__


@pytest.mark.parametrize(
    ("text", "headers"),
    [
        ("#include <a.h>\n#include <b>\nint x;\n#include <c>\n", ("a.h", "b")),
        ("/* #include <no> */ // nor <this>\n  #  include  <a.h> // yes\n", ("a.h",)),
        ("\ufeff#include <a.h>", ("a.h",)),
        ('#include "a.h"\n#include <b.h>\n', ()),
        ("#define X\n#include <a.h>\n", ()),
        ("#include <a.h> int x;\n", ()),
        ("#include <a.h>\r\n#include <b.h>\r\n", ("a.h", "b.h")),
        ("// a comment that goes on \\\n#include <a.h>\n#include <b.h>\n", ()),
        ("/* ends here *\\\n/ #define X\n/* */\n#include <a.h>\n", ()),
        ("// goes on ??/\n#include <a.h>\n", ()),
        ("", ()),
    ],
)
def test_leading_includes(text: str, headers: tuple[str, ...]) -> None:
    assert leading_includes.leading(text) == headers


def test_a_prelude_ends_with_the_last_heavy_header() -> None:
    assert leading_includes.worth_having(("vector", "torch/extension.h", "map")) == (
        "vector",
        "torch/extension.h",
    )
    assert leading_includes.worth_having(("vector", "map")) == ("vector", "map")


def reduced(
    words: list[str], users: list[str] | None = None, mentioned: set[str] | None = None
) -> flag_reduction.Reduced:
    return flag_reduction.reduce(words, words if users is None else users, mentioned or set())


def test_warnings_and_the_users_macros_share_a_profile() -> None:
    base = reduced(["-O2", "-fPIC"])
    assert reduced(["-O2", "-Wall", "-Wno-unused", "-fPIC", "-DMINE=3", "-UYOURS"]) == base


def test_torchs_folders_are_no_callers_whoever_names_them() -> None:
    words = ["-O2", "-I/own", "-isystem", "/torch", "-I/torch/api"]
    found = flag_reduction.reduce(words, words, set(), {"/torch", "/torch/api"})
    assert found.folders == ["/own"]
    assert found.flags == ["-O2", "-isystem", "/torch", "-I/torch/api"]


@pytest.mark.parametrize(
    "word", ["-O3", "-std=c++17", "-march=native", "-g", "-fopenmp", "-Wp,-DX", "-Wa,-x"]
)
def test_what_changes_code_makes_a_profile_of_its_own(word: str) -> None:
    assert word in reduced(["-O2", word]).flags


@pytest.mark.parametrize(
    ("word", "is_kept"),
    [
        ("-ffile-prefix-map=/home/me/project/=", False),
        ("-fmacro-prefix-map=/build/a=.", False),
        ("-fdebug-prefix-map=/home/me/project=/src", False),
        ("-ffile-prefix-map=/=/sysroot", True),
        ("-ffile-prefix-map=/us=/b", True),
        ("-ffile-prefix-map=/usr/include/c++=/c", True),
        ("-ffile-prefix-map=/home/me/env=", True),
        ("-ffile-prefix-map==/b", True),
        ("-ffile-prefix-map=.=/b", True),
        ("-ffile-prefix-map=/a=b=c", True),
        ("-fprofile-prefix-map=/a=b", True),
    ],
)
def test_other_names_for_files_that_are_no_headers_share_a_profile(
    word: str, is_kept: bool
) -> None:
    places = ["/usr/include", "/home/me/env/torch/include/"]
    found = flag_reduction.reduce(["-O2", word], [word], set(), (), places)
    assert found.flags == ["-O2", *([word] if is_kept else [])]
    assert found.with_folders == ["-O2", word], "the caller's own headers may be among them"
    assert word in reduced([word]).flags, "nobody knows where headers come from"


@pytest.mark.parametrize("word", ["-lcudart", "-L/a", "-Wl,-rpath,/a", "-l m", "-L /a"])
def test_what_is_the_linkers_shares_a_profile(word: str) -> None:
    """With it, g++ would link the header, and find no such library."""
    assert reduced(["-O2", *word.split(), "-fPIC"]) == reduced(["-O2", "-fPIC"])


def test_macros_that_do_not_share() -> None:
    assert "-DX" in reduced(["-DX"], mentioned={"X"}).flags, "a header mentions it"
    assert "-DX" in reduced(["-DX"], users=[]).flags, "it is not the caller's"
    assert reduced(["-DX", "-UX"]).flags == ["-DX", "-UX"], "the order of two counts"
    assert reduced(["-DTORCH_EXTENSION_NAME=a"], users=[]).flags == [], "it is the module's name"


@pytest.mark.parametrize(
    ("words", "same"),
    [
        ("-O3 -g -fPIC -O3", "-g -fPIC -O3"),
        ("-O2 -g -Os -O3", "-g -O3"),
        ("-std=c++20 -fPIC -std=c++17", "-fPIC -std=c++17"),
        ("-DNDEBUG -g -DNDEBUG -DTORCH_EXTENSION_NAME=a -DTORCH_EXTENSION_NAME=a", "-g -DNDEBUG"),
        ("-fno-rtti -frtti -fno-rtti", "-frtti -fno-rtti"),
    ],
)
def test_what_stands_twice_shares_a_profile(words: str, same: str) -> None:
    """A ``setup.py`` has Python's flags, the package's, and a list that torch added to twice."""
    mentioned = {"NDEBUG"}
    assert reduced(words.split(), mentioned=mentioned) == reduced(same.split(), mentioned=mentioned)
    assert reduced(same.split(), mentioned=mentioned).flags == same.split()


@pytest.mark.parametrize(
    "words", ["-DN=1 -DN=2 -DN=1", "-DN -UN -DN", "-frtti -fno-rtti", "-Xpreprocessor -DN -DN"]
)
def test_what_another_word_takes_back_is_kept(words: str) -> None:
    found = reduced(words.split(), mentioned={"N"}).flags
    assert found == (words.split() if "-X" in words else words.split()[-2:])


def test_folders_count_when_they_hold_a_name_of_the_prelude(tmp_path: Path) -> None:
    found = reduced(["-O2", f"-I{tmp_path}", "-isystem", "/sys"], users=[f"-I{tmp_path}"])
    assert found.flags == ["-O2", "-isystem", "/sys"]
    assert found.with_folders == ["-O2", f"-I{tmp_path}", "-isystem", "/sys"]
    names = frozenset({"torch", "vector"})
    (tmp_path / "mine.h").touch()
    assert not flag_reduction.any_matters(found.folders, names)
    (tmp_path / "torch").mkdir()
    assert flag_reduction.any_matters(found.folders, names)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("at::Tensor f(at::Tensor a) { return a; }", True),
        ("TORCH_LIBRARY(x, m) {}", True),
        ("#define TWICE(x) (x + x)\nint f() { return TWICE(2); }", True),
        ("PYBIND11_MODULE(x, m) {}", True),
        ("torch::nn::Linear l(1, 2);", False),
        ("#ifdef PYBIND11_VERSION\n#endif", False),
        ("#if 1\n#endif", False),
        ("int x = __COUNTER__;", False),
        ("THPVariable_Wrap(x);", True),
        ("THPDevice_New(x);", False),
    ],
)
def test_what_may_go_behind_the_lean_prelude(text: str, allowed: bool) -> None:
    assert (lean.why_not(text) is None) is allowed


def test_the_smaller_lean_prelude_that_has_what_is_mentioned() -> None:
    assert lean.headers("at::Tensor happy(at::Tensor a);") == lean.TORCH
    for text in (
        "py::object x;",
        "PYBIND11_MODULE(x, m) {}",
        "pybind11::int_ x;",
        "THPVariable_Wrap(x);",
    ):
        assert lean.headers(text) == lean.PYTHON


def test_includes_that_the_lean_prelude_stands_for_leave_their_lines_empty() -> None:
    text = "#include <torch/extension.h>\n#include <vector>\n#include <torch/extension.h>\nint x;\n"
    assert lean.rewrite(text) == "\n#include <vector>\n\nint x;\n"
    assert lean.rewrite("#include <vector>\nint x;\n#include <torch/extension.h>\n") is None
    assert lean.rewrite("#include <torch/extension.h>\n#include <pybind11/numpy.h>\n") is None


def test_what_was_missing_is_remembered_over_restarts(tmp_path: Path) -> None:
    source = "int f() { return far_away(Tensor()); }"
    missing = lean.Missing(tmp_path / "lean.json")
    assert missing.mentioned_in(source) is None
    said = (
        "x:1: error: \u2018far_away\u2019 was not declared; \u2018Tensor\u2019 and "
        "\u2018unrelated\u2019\n"
    )
    assert missing.learn(said, [source]) == ["far_away"]
    assert lean.Missing(tmp_path / "lean.json").mentioned_in(source) == "far_away"


@pytest.mark.parametrize(
    ("said", "source", "learnt"),
    [
        (
            'x.cu(1): error: namespace "torch" has no member "CUDA"',
            'auto a = torch::CUDA(at::kInt); auto b = c10::DeviceType::CUDA; f("a CUDA tensor");',
            ["torch::CUDA"],
        ),
        (
            'x.cu(1): error: namespace "torch" has no member "CUDA"',
            "namespace t = torch; auto a = t::CUDA(at::kInt);",
            ["t::CUDA"],
        ),
        (
            "x.cpp:1:1: error: \u2018far\u2019 is not a member of \u2018at::native\u2019",
            "int a = at :: native ::far(); int b = mine::far();",
            ["native::far"],
        ),
        ('x.cu(1): error: identifier "far" is undefined', "far(x); at::far(y);", ["far"]),
        ('x.cu(1): error: class "at::Tensor" has no member "far"', "x.far(); at::far(y);", ["far"]),
        ('x.cu(1): error: identifier "far" is undefined', 'f("far"); // far', []),
    ],
)
def test_a_name_is_missing_in_its_namespace(
    said: str, source: str, learnt: list[str], tmp_path: Path
) -> None:
    missing = lean.Missing(tmp_path / "lean.json")
    assert missing.learn(said, [source]) == learnt
    others = 'TORCH_CHECK(x.device() == c10::DeviceType::CUDA, "x must be a CUDA tensor, far");'
    assert missing.mentioned_in(others) is None
    assert missing.mentioned_in(source) == (learnt[0] if learnt else None)


def test_another_version_forgets_what_was_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lean.Missing(tmp_path / "lean.json").learn(
        'x:1: error: identifier "far_away" is undefined', ["far_away"]
    )
    monkeypatch.setattr(lean, "__version__", "0.0.9")
    assert lean.Missing(tmp_path / "lean.json").mentioned_in("far_away") is None


@pytest.mark.parametrize(
    ("said", "names"),
    [
        # g++
        ("a.cpp:1:8: error: \u2018gone\u2019 is not a member of \u2018at\u2019\n"
         "    1 | at::gone(tile);\n", {"gone"}),
        (
            "a.cpp:3:4: error: expected constructor, destructor, or type conversion before "
            "\u2018(\u2019 token\n"
            "    3 | LIBRARY(warm, m) { m.def(f); }\n      |        ^\n"
            "a.cpp:4:1: error: \u2018m\u2019 was not declared",
            {"LIBRARY"},
        ),
        (
            "a.cpp:4:67: error: no matching function for call to \u2018take(int, double)\u2019\n"
            "    4 | q::take(1, 2.0); tile();\n      | ~~~~~~~^~~~~~~~\n",
            {"take"},
        ),
        (
            "a.cpp:2:1: error: specialization of \u2018c10::Caster<Mine>\u2019 "
            "after instantiation\n"
            "    2 | \u00e4\u00f6\u00fc Caster<Mine> {}\n      | ^~~~",
            {"Caster"},
        ),
        # nvcc's front ends
        (
            'cuda.cu(11): error: namespace "torch::autograd" has no member class "Function"\n'
            "  struct Cube : torch::autograd::Function<Cube> {\n"
            "                                 ^\n\n"
            'cuda.cu(26): error: class "Cube" has no member "apply"\n',
            {"Function"},
        ),
        (
            'cuda.cu(2): error: no instance of overloaded function "at::launch" matches '
            "the argument list\n"
            "            argument types are: (int)\n  at::launch(tile);\n  ^\n",
            {"launch"},
        ),
        # of nothing that a header lacks
        (
            "crt/host.h:3:2: error: #endif without #if\n    3 | \n      |  ^\n"
            "cuda.cu:9:1: error: \u2018tile\u2019 was not declared\n",
            set(),
        ),
        ('cuda.cu(19): error: identifier "m" is undefined\n', set()),
        ("Killed", set()),
    ],
)  # fmt: skip
def test_what_a_compiler_complains_of_first_is_missing(
    said: str, names: set[str], tmp_path: Path
) -> None:
    source = "m tile LIBRARY gone take Caster Mine Function apply Cube torch autograd launch at c10"
    assert set(lean.Missing(tmp_path / "lean.json").learn(said, [source])) == names


@pytest.mark.parametrize(
    "content", ["", "{", "[1, 2]", '{"a": 1}', '{"version": "%s"}', '{"version": "%s", "names": 3}']
)
def test_a_damaged_memory_is_an_empty_one(content: str, tmp_path: Path) -> None:
    (tmp_path / "lean.json").write_text(content.replace("%s", __version__))
    assert lean.Missing(tmp_path / "lean.json").mentioned_in("b c") is None

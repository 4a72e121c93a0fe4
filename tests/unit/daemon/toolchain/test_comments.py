"""Comments that do not count, and all that must: compared with what g++ itself makes of the
text.
"""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warmcc.daemon.toolchain.comments import may_be_left_out, without_comments

PIECES = [
    "int a = 1;", "// one", "/* two */", "/* three\n lines */", '"// text"', '"a\\"b"', "'\"'",
    "u8'\"'", "1'000'000", '\n#define X "y" // why\n', 'R"(// raw " )"', 'R"x(/* )" )x"',
    'R"(  \n)"', 'R"(\n)"', "a / b", "a /* c */ / d", "\n", "\\\n", "// spliced \\\n still\n",
    "don't", "/", "*", "/\\\n/ odd\n", "*\\\n/", "#include <a//b>", "\t", "  ", "é", "L'x'",
    "0x1p+3", '"open', "??/\n", "/* é */", 'FOOR"(x)"', '"a\\\n b"', "\n  \n", 'R\\\n"(// )"', "$",
    "\\u00e9", "\n#define Y /* a\n b */ 1\n", "\n#define Y /* a\n c */ 1\n",
    "\n#define Y\n      1\n", "\n%:include <a//b>\n", "\n%:include <a//c>\n", " \\\n  ",
    "#include \\\n<a//b>", "\n#include <cstddef> // why\n",
]  # fmt: skip


def tokens(text: str) -> tuple[int, str]:
    """What the preprocessor makes of a text: lines and columns too, as it keeps them."""
    words = ["c++", "-std=c++20", "-x", "c++", "-E", "-w", "-"]
    done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@settings(max_examples=600, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_the_preprocessor_sees_the_same(text: str) -> None:
    left = without_comments(text)
    assert left.count("\n") == text.count("\n")
    assert without_comments(left) == left
    if left != text:
        assert tokens(left) == tokens(text)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=8),
    st.integers(0, 7),
    st.sampled_from(PIECES),
)
def test_equal_keys_are_equal_code(pieces: list[str], index: int, other: str) -> None:
    index %= len(pieces)
    one, two = "".join(pieces), "".join([*pieces[:index], other, *pieces[index + 1 :]])
    if one != two and without_comments(one) == without_comments(two):
        assert tokens(one) == tokens(two)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("f(); // a", "f(); // b and more", True),
        ("f(); // a", "f();", True),
        ("/* a */ f();", "/* b */ f();", True),
        ("/* a */ f();", "/* bb */ f();", False),  # another column
        ("// a\nf();", "f();", False),  # another line
        ('f("// a");', 'f("// b");', False),
        ('f(R"(a  \n)");', 'f(R"(a\n)");', False),
        ("f();  \n", "f();\n", True),
        ("/* a\nb */ f();", "/* c\nd */ f();", True),
        (
            "#define X /* a\n b */ 1",
            "#define X\n      1",
            False,
        ),  # the directive goes on behind the comment
        ("%:include <a//b>", "%:include <a//c>", False),
        ('f(R"(// a\n)");', 'f(R"(// b\n)");', False),
        ("/* a *\\\n/ f(); /* b */", "/* a *\\\n/ g(); /* b */", False),
        (
            '#pragma GCC diagnostic error "-Wall"\n// a',
            '#pragma GCC diagnostic error "-Wall"\n// b',
            False,
        ),
        ("#include <a//b>\nf(); // a", "#include <a//b>\nf(); // b", False),
    ],
)
def test_what_counts(one: str, other: str, same: bool) -> None:
    assert (without_comments(one) == without_comments(other)) is same


@pytest.mark.parametrize(
    ("flags", "harmless"),
    [
        ([], True),
        (["-O3", "-march=native", "-DN=1", "-std=c++17"], True),
        (["-D", "Wall", "-I", "/x"], True),
        (["-gencode", "arch=compute_90,code=sm_90", "--use_fast_math"], True),
        (["-Wall"], False),
        (["-g"], False),
        (["-O2 -Wimplicit-fallthrough"], False),
        (["-lineinfo"], False),
        (["-Xcompiler", "-Wall"], False),
        (["-C"], False),
    ],
)
def test_flags_with_which_comments_may_matter(flags: list[str], harmless: bool) -> None:
    assert may_be_left_out(flags) is harmless

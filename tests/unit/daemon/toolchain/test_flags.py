"""Which flags can be keyed, depend on the working directory, or only name libraries."""

from __future__ import annotations

import pytest

from warmcc.daemon.toolchain import flags


@pytest.mark.parametrize(
    "text",
    [
        "-O2 -Wall",
        "-DX=1",
        "-DNAME='\"text\"'",
        "-I/a/b -isystem /c",
        "-std=c++20 -fPIC",
        "-Wl,-rpath,/a",
        "-lfoo",
    ],
)
def test_keyable(text: str) -> None:
    assert flags.unkeyable(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "@file", "-B/x", "-specs=x", "-fplugin=x.so", "-save-temps", "-o x", "-MF x", "-MD",
        "-fprofile-use", "-E", "-wrapper x", "-fdump-tree-all", "-gsplit-dwarf", "--coverage",
        "$(cat x)", "`cat x`", "-D'x", "-DX=* -DY",
    ],
)  # fmt: skip
def test_unkeyable(text: str) -> None:
    assert flags.unkeyable(text) is not None


@pytest.mark.parametrize(
    ("text", "relative"),
    [
        ("-O2 -fPIC -std=c++17 -DX -I/a -isystem /b", False),
        ("-Iinclude", True),
        ("-I include", True),
        ("-isystem include", True),
        ("-include x.h", True),
        ("-include /x.h", False),
        ("-Wl,-rpath,lib", True),
        ("-L/a -lb", False),
        ("-unheard-of", True),
        ("-ffile-prefix-map=/build/python=. -O3", False),
        ("-fdebug-prefix-map=a=b -fmacro-prefix-map=a=b", False),
        ("-I", True),
        ("'open", True),
    ],
)
def test_relative_paths(text: str, relative: bool) -> None:
    assert flags.relative_paths(text) is relative


def test_folders_in_the_order_of_the_search() -> None:
    assert flags.include_folders("-isystem /s -I/a -I /b -iquote /q -idirafter /z -isystem /t") == [
        "/q", "/a", "/b", "/s", "/t", "/z",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "plain"),
    [
        (["-L/a", "-lb", "-lc10"], True),
        (["/a/libb.so.1", "/a/b.a"], True),
        (["-Wl,-rpath,/a"], True),
        (["-Wl,-T,script.ld"], False),
        (["-static-libgcc"], False),
        (["'open"], False),
    ],
)
def test_plain_libraries(words: list[str], plain: bool) -> None:
    assert flags.plain_libraries(words) is plain


@pytest.mark.parametrize(
    ("text", "expected"),
    [("-fPIC", False), ("-O2", True), ("-O2 -O0", False), ("-O0 -Os", True), ("-O", True)],
)
def test_optimises(text: str, expected: bool) -> None:
    assert flags.optimises(text.split()) is expected

"""A compiler's text in the user's lines, and as records."""

from __future__ import annotations

import pytest

from warmcc.daemon.build.diagnostics import LineMap, parse, to_user_lines

FIRST = "int a;\nint b;"
SECOND = "int c;"
MAIN = f"#include <torch/extension.h>\n{FIRST}\n{SECOND}\nPYBIND11_MODULE(x, m) {{\n}}"


@pytest.mark.parametrize(
    ("line", "place"),
    [
        (1, ("main.cpp", 1)),
        (2, ("cpp_sources[0]", 1)),
        (3, ("cpp_sources[0]", 2)),
        (4, ("cpp_sources[1]", 1)),
        (5, ("functions", 1)),
    ],
)
def test_lines_of_main_cpp(line: int, place: tuple[str, int]) -> None:
    assert LineMap.of(MAIN, [FIRST, SECOND]).locate(line) == place


def test_no_map_where_the_text_is_not_stocks() -> None:
    assert LineMap.of("something else", [FIRST]) == LineMap()


def test_text_and_margin_are_in_the_users_numbers() -> None:
    text = (
        "/tmp/x/main.cpp: In function 'int f()':\n"
        "/tmp/x/main.cpp:3:5: error: no\n    3 | int b;\n      |     ^\n"
        "/usr/include/v.h:3:1: note: here\n    3 | theirs\n"
    )
    found = to_user_lines(text, [LineMap.of(MAIN, [FIRST, SECOND])])
    assert "cpp_sources[0]:2:5: error: no\n    2 | int b;\n" in found
    assert "/usr/include/v.h:3:1: note: here\n    3 | theirs\n" in found


def test_records() -> None:
    text = (
        "a.cpp:3:5: error: one\na.cpp:4: warning: two\nc++: fatal error: three\n"
        "collect2: error: ld returned 1\n"
        "x.o: in function `f': undefined reference to `g'\nnothing\n"
    )
    assert [(d.file, d.line, d.column, d.severity, d.message) for d in parse(text)] == [
        ("a.cpp", 3, 5, "error", "one"),
        ("a.cpp", 4, 0, "warning", "two"),
        ("c++", 0, 0, "fatal error", "three"),
        ("collect2", 0, 0, "error", "ld returned 1"),
        ("", 0, 0, "error", "undefined reference to `g'"),
    ]

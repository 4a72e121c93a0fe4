"""Thousands of small projects: where the walk says that torch's headers may be read first, g++
reads the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.openings import Project, by_file

NAMES = (
    "OPS_H", "MINE_H", "_MINE_H_", "__OTHER_H__", "TESTED", "DEFAULTED", "REMOVED", "MENTIONED",
    "SKIPPED", "FREE", "ATEN_TESTED", "OTHER_TESTED", "TORCH_LATER", "_GNU_SOURCE", "linux",
    "GIVEN", "GIVEN", "UNSET", "_WIN32", "private", "__CUDA_RUNTIME_H__",
)  # fmt: skip
LATER = ("DEFAULTED", "TORCH_LATER", "ATEN_LATER")  # torch defines them
HEADERS = ("a.h", "b.h", "more/c.h", "more/d.h")
OWN = ('"a.h"', '"b.h"', '"more/c.h"', "<c.h>", '"c.h"', "<d.h>", '"../a.h"')
TORCHS = (
    "<torch/extension.h>",
    "<torch/extension.h>",
    '"torch/extension.h"',
    "<ATen/ATen.h>",
    "<c10/other.h>",
)
SYSTEMS = (
    "<stddef.h>",
    "<cstddef>",
    "<errno.h>",
    "<string.h>",
    "<unknown.h>",
    "<fmt/light.h>",
    "<gone.h>",
    "MACRO",
)
MILD = ("", "// said", "/* said\n over two lines */", "#include <stddef.h> // why",
    "#include <stddef.h> /* why */",
        "/* in front */ #include <cstddef>", "/** x **/", "#pragma once",
        "#define FREE 5 // five")  # fmt: skip
ODD = ("// goes on \\", "/* x *\\\n/", "#endif", "#if 0", "#else", "# /* nothing */", "int code;",
    "/* open",
       "#include <stddef.h> more", "%:include <stddef.h>", "#include \\\n<stddef.h>",
       "??=define FREE")  # fmt: skip


def _includes(names: tuple[str, ...]) -> st.SearchStrategy[str]:
    return st.sampled_from(names).map(lambda name: f"#include {name}")


def _about(form: str) -> st.SearchStrategy[str]:
    return st.sampled_from(NAMES).map(lambda name: form.replace("NAME", name))


_unknown = _includes(("<unknown.h>", "<stddef.h>", "<stddef.h>"))
_CONDITIONS = ("ifdef NAME", "ifndef NAME", "if defined(NAME)", "if !defined NAME")
_condition = st.tuples(
    st.sampled_from(_CONDITIONS), st.sampled_from((*NAMES, *LATER * 4)),
    st.one_of(_unknown, st.sampled_from((*MILD, *["int seen;"] * 9))),
    st.sampled_from(("", "#else\n#define BRANCH\n", "#else\nint other;\n", "#elif 1\n")),
).map(lambda one: f"#{one[0].replace('NAME', one[1])}\n{one[2]}\n{one[3]}#endif")  # fmt: skip
_choice = st.tuples(
    st.sampled_from(("if NAME > 1", "if defined(NAME) || NAME", "ifdef NAME", "if !NAME")),
    st.sampled_from((*NAMES, *LATER)), st.sampled_from((*NAMES, "BRANCH")),
    st.sampled_from(("", "#else\n#define OTHER\n", "#elif __cplusplus > 1\n# define OTHER 1\n")),
).map(
    lambda one: f"#{one[0].replace('NAME', one[1])}\n#define {one[2]}\n{one[3]}#endif"
)  # fmt: skip
_mild = st.one_of(
    _condition, _choice,
    _includes(OWN), _includes(SYSTEMS[:4]), st.sampled_from(MILD), st.sampled_from(MILD), _unknown,
    st.one_of(_about("#define NAME"), st.sampled_from(MILD)),
)  # fmt: skip
_line = st.one_of(
    _mild, _mild, _mild, _includes(TORCHS), _includes(SYSTEMS), st.sampled_from(ODD),
    _about("#define NAME(x) x"), _about("#undef NAME"),
    _about("#ifdef NAME\nint seen_NAME;\n#else\nint unseen_NAME;\n#endif"),
)  # fmt: skip
_body = st.one_of(
    st.lists(_mild, max_size=3), st.lists(_mild, max_size=3), st.lists(_line, max_size=4)
)


@st.composite
def _text(draw: st.DrawFn) -> str:
    lines = draw(_body)
    if draw(st.sampled_from([1, 1, 0])):
        lines += [draw(_includes(TORCHS)), *draw(_body)]
    shape = draw(st.sampled_from(["plain", "once", "guard", "guard"]))
    if shape == "once":
        lines = ["#pragma once", *lines]
    elif shape == "guard":
        name = draw(st.sampled_from((*NAMES, "A_H", "B_H", "C_H", "A_H_", "B_H_")))
        lines = [f"#ifndef {name}", f"#define {name}", *lines, "#endif"]
    return "\n".join(lines) + draw(st.sampled_from(["\n", ""]))


_END = "".join(f"#ifdef {name}\nint at_end_{name};\n#endif\n" for name in NAMES if name.isupper())


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(
        tmp_path_factory.mktemp("openings"), ["-DGIVEN=1", "-UUNSET", "-fmax-include-depth=8"]
    )


@pytest.mark.slow
def test_the_order_does_not_matter_where_the_walk_says_so(project: Project) -> None:
    counted: Counter[str] = Counter()

    @settings(
        max_examples=200,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(
        texts=st.tuples(_text(), _text(), _text(), _text()),
        main=_text(),
        beside=st.sampled_from([0, 0, 0, 1]),
    )
    def every_project(texts: tuple[str, ...], main: str, beside: int) -> None:
        counted.update(_both_orders(project, texts, main, beside))

    every_project()
    # Of use only where many projects may have a precompiled header, and others not.
    assert min(counted[kind] for kind in ("the same", "refused by g++", "not moved")) > 2, counted


def _both_orders(project: Project, texts: tuple[str, ...], main: str, beside: int) -> Iterator[str]:
    """Compare what g++ reads in both orders; what became of each."""
    project.clear()
    for name, text in zip(HEADERS, texts, strict=True):
        project.write(f"user/{name}", text)
    if beside:
        project.write("user/torch/extension.h", "int beside;\n")
    project.write("user/main.cpp", f'#include "a.h"\n{main}\n{_END}')
    found = project.opening()
    stock = project.stock()
    for size, macros in enumerate(found.macros, start=1):
        if macros is None:
            continue
        forced = project.forced(found, size)
        if forced is None:
            assert stock is None or "prelude.h.gch: not used" in project.said, project.said
            yield "refused by g++"
            continue
        yield "the same"
        assert stock is not None, f"stock does not compile it: {found}"
        moved = by_file(project.alone(found.headers[:size]))
        was, now = by_file(stock), by_file(forced)
        assert set(was) <= set(now) | set(moved)
        for path in set(was) | set(now) | set(moved):
            if "/pch" not in path:
                read = [text for text in (moved.get(path), now.get(path)) if text]
                assert read == ([was[path]] if path in was else []) or path.endswith("stddef.h"), (
                    path,
                    found,
                )
    if not found.macros or not any(macros is not None for macros in found.macros):
        yield "not moved"

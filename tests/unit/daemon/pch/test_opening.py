"""What a unit begins with: which forms are passed, which end the walk, and that the code is the
same.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sysconfig
import threading
from pathlib import Path

import pytest

from tests.support.cuda import library_headers
from tests.support.openings import Project, by_file
from warmcc.daemon.pch import opening
from warmcc.daemon.pch.opening import Opening
from warmcc.daemon.toolchain import ninja

EXTENSION = "torch/extension.h"
INCLUDE = "#include <torch/extension.h>\n"
NONE: frozenset[str] = frozenset()
OF_PYTHON = [
    "__STDC_WANT_IEC_60559_BFP_EXT__", "__STDC_WANT_IEC_60559_DFP_EXT__",
    "__STDC_WANT_IEC_60559_FUNCS_EXT__", "__STDC_WANT_IEC_60559_TYPES_EXT__",
    "__STDC_WANT_LIB_EXT2__", "__STDC_WANT_MATH_SPEC_FUNCS__",
]  # fmt: skip
GUARDED = "#ifndef OWN_H_\n#define OWN_H_\n{}#endif  // OWN_H_\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path, ["-O1", "-DGIVEN"])


def walked(project: Project, main: str, **headers: str) -> Opening:
    for name, text in headers.items():
        project.write(f"user/{name}.h", text)
    project.write("user/main.cpp", main + "\nint mine() { return body(); }\n")
    return project.opening()


PASSED: dict[str, tuple[str, str, frozenset[str] | None]] = {
    "nothing": (INCLUDE, "", None), "quotes": ('#include "torch/extension.h"', "", None),
    "a standard header": ("#include <cassert>\n" + INCLUDE, "", NONE),
    "an own header": ('#include "own.h"',
        "#pragma once\n// said\n" + INCLUDE + "#define LATER\nint later;\n", NONE),
    "a guard": ('#include "own.h"', GUARDED.format("#include <stdio.h>\n" + INCLUDE),
        frozenset({"OWN_H_"})),
    "a guard and torch behind it": (f'#include "own.h"\n#include "own.h"\n{INCLUDE}',
        GUARDED.format(""), {"OWN_H_"}),
    "a macro": ('#define NOMINMAX  // why\n#include "own.h"', "#define F(x) (x + 1)\n" + INCLUDE,
        {"NOMINMAX", "F"}),
    "lines of Windows": ('#include "own.h"\r\n', "#pragma once\r\n" + INCLUDE.replace("\n", "\r\n"),
        NONE),
    "a byte order mark": ('\ufeff#include "own.h"', "\ufeff#pragma once\n" + INCLUDE, NONE),
    "a condition on a flag": ("#ifdef GIVEN\n#include <cassert>\n#endif\n" + INCLUDE, "", NONE),
    "a condition on a flag, turned round": (
        "#ifndef GIVEN\nstruct S;\n#if 1\n#else\n#endif\n#endif // GIVEN\n" + INCLUDE, "", None),
    "a condition on a name that is nowhere": ('#include "own.h"',
        "#if defined(X)\nint x;\n#else\n#include <cassert>\n#endif\n" + INCLUDE, {"X"}),
    "macros by a condition": ('#include "own.h"', "#pragma once\n#ifdef _WIN32\n#if defined(X)\n"
        "#define API __declspec(dllexport)\n#endif\n#else\n#define API\n#endif\n"
        "#if (defined __cpp_inline_variables) || __cplusplus >= 201703L\n#define V inline\n#else\n"
        "#define V __attribute__((weak))\n#endif\n" + INCLUDE, {"X", "API", "V"}),
    "the other branch": ("#define X\n#ifdef X\n#  define Y\n#else\nint x;\n#endif\n" + INCLUDE,
        "", {"X", "Y"}),
    "other systems": ("#include <cassert>\n#if defined _WIN32\n#error no\n#endif\n" + INCLUDE, "",
        NONE),
    "another folder": ('#include "more/../own.h"', INCLUDE, NONE),
}  # fmt: skip


@pytest.mark.parametrize("name", PASSED)
def test_what_is_passed_gives_the_same_code(project: Project, name: str) -> None:
    main, own, macros = PASSED[name]
    found = walked(project, main, own=own)
    assert found == Opening((EXTENSION,), (macros if macros is None else frozenset(macros),))
    stock, forced = project.stock(compiled=True), project.forced(found, 1, compiled=True)
    assert stock is not None, project.said
    assert forced is not None, project.said
    assert "mine" in stock
    assert code(forced) == code(stock)


def code(assembler: str) -> list[str]:
    return [
        line for line in assembler.split("\n") if not line.lstrip().startswith((".file", ".ident"))
    ]


ENDED: dict[str, tuple[str, str]] = {
    "float.h in front of Python.h": ("#include <cfloat>\n" + INCLUDE, ""),
    "a condition": ("#if 1\nint x;\n#endif\n" + INCLUDE, ""),
    "a condition behind a system header": (
        "#include <cassert>\n#ifdef X\nint x;\n#endif\n" + INCLUDE,
        "",
    ),
    "a condition on a reserved name": ("#ifdef __OPTIMIZE__\n#endif\n" + INCLUDE, ""),
    "a condition on a name of the compiler's": ("#ifdef linux\nint x;\n#endif\n" + INCLUDE, ""),
    "a condition on two names": ("#if defined(X) && defined(Y)\nint x;\n#endif\n" + INCLUDE, ""),
    "a condition without an end": ('#include "own.h"\n' + INCLUDE, "#ifdef X\n"),
    "a second condition": ("#ifdef X\n#elif 1\nint x;\n#endif\n" + INCLUDE, ""),
    "a comment in what is skipped": ("#ifdef X\nint x; /*\n#endif\n*/\n#endif\n" + INCLUDE, ""),
    "a reserved name in a condition": ("#if __BYTE_ORDER__ > 1\n#endif\n" + INCLUDE, ""),
    "a condition on a macro of one branch": (
        "#if A > 1\n#define B\n#endif\n#ifdef B\nint x;\n#endif\n" + INCLUDE,
        "",
    ),
    "code in what is taken": ("#ifdef GIVEN\nint x;\n#endif\n" + INCLUDE, ""),
    "code": ('#include "own.h"', "struct S;\n" + INCLUDE),
    "undef": ("#undef FREE\n" + INCLUDE, ""),
    "a reserved macro": ("#define _GNU_SOURCE 1\n" + INCLUDE, ""),
    "another reserved macro": ("#define __STDC_FORMAT_MACROS\n" + INCLUDE, ""),
    "a macro of the compiler's": ("#define linux 3\n" + INCLUDE, ""),
    "a macro of the flags": ("#define GIVEN 3\n" + INCLUDE, ""),
    "a guard of the flags": (
        '#include "own.h"',
        "#ifndef GIVEN\n#define GIVEN\n" + INCLUDE + "#endif\n",
    ),
    "a guard of two headers": ('#include "own.h"\n#include "b.h"', GUARDED.format("")),
    "a name that is no guard's": (
        '#include "own.h"',
        "#ifndef SIZE\n#define SIZE 3\n#endif\n" + INCLUDE,
    ),
    "a guard that a system header may have": (
        '#include <omp.h>\n#include "own.h"',
        "#ifndef _OMP_H\n#define _OMP_H\n",
    ),
    "a header of unknown order": ("#include <unknown.h>\n" + INCLUDE, ""),
    "the imaginary unit": ("#include <complex.h>\n" + INCLUDE, ""),
    "formats": ("#include <inttypes.h>\n" + INCLUDE, ""),
    "CUDA's version": ("#include <cuda.h>\n" + INCLUDE, ""),
    "a named header": ("#define HEADER <stddef.h>\n#include HEADER\n" + INCLUDE, ""),
    "the next header": ("#include_next <stddef.h>\n" + INCLUDE, ""),
    "import": ("#import <stddef.h>\n" + INCLUDE, ""),
    "a pragma": ("#pragma GCC diagnostic push\n" + INCLUDE, ""),
    "what is not found": ('#include "gone.h"\n' + INCLUDE, ""),
    "a circle": ('#include "own.h"', '#include "own.h"\n' + INCLUDE),
    "a comment that goes on": ("// so \\\n" + INCLUDE, ""),
    "a comment with a cut end": ("/* so *\\\n/ #define TESTED\n/* */\n" + INCLUDE, ""),
    "a trigraph": ("// so ??/\n" + INCLUDE, ""),
    "other spelling": ("%:define TESTED\n" + INCLUDE, ""),
    "more on the line": ("#include <stddef.h> int x;\n" + INCLUDE, ""),
}


@pytest.mark.parametrize("name", ENDED)
def test_what_ends_the_walk(project: Project, name: str) -> None:
    main, own = ENDED[name]
    plain = name in (
        "a header of unknown order", "the imaginary unit", "formats", "CUDA's version",
        "float.h in front of Python.h",
    )  # fmt: skip
    found = walked(project, main, own=own, b=own)
    assert found.macros == ()
    assert (EXTENSION in found.headers) == plain, (
        "such a header may stand in a precompiled one, where it stands here"
    )
    assert plain or found.why.endswith("in front of torch's headers")


@pytest.mark.parametrize("name", ["DEFAULTED", "TORCH_LATER", "ATEN_LATER", "TESTED", "REMOVED"])
@pytest.mark.parametrize(
    "form", ["#ifdef {}\nint seen;\n#endif\n", "#if {} > 1\n#define S\n#endif\n"]
)
def test_gpp_refuses_what_torch_knows_of_a_condition(
    project: Project, name: str, form: str
) -> None:
    found = walked(project, form.format(name) + INCLUDE)
    (macros,) = found.macros
    assert found.headers == (EXTENSION,) and macros is not None and name in macros
    assert project.forced(found, 1) is None
    assert f"`{name}' is defined" in project.said


def test_float_h_may_stand_behind_python_h(project: Project) -> None:
    project.write("site/torch/python.h", "int python;\n")
    later = "#include <cfloat>\n#include <torch/python.h>\n"
    assert walked(project, INCLUDE + later).headers == (EXTENSION, "torch/python.h")
    assert "torch/python.h" not in walked(project, '#include "own.h"\n' + later, own="").headers


def test_python_in_front_of_torch_is_precompiled_with_it(project: Project) -> None:
    project.write("system/Python.h", "int python;\n")
    for main in (
        f"#include <Python.h>\n{INCLUDE}",
        f"#ifdef GIVEN\n#include <Python.h>\n#endif\n{INCLUDE}",
    ):
        found = walked(project, main)
        assert found == Opening(("Python.h", EXTENSION), (None, None))
    assert walked(project, f"#include <cassert>\n#include <Python.h>\n{INCLUDE}").macros == ()
    assert walked(project, "#ifdef GIVEN\n#include <Python.h>\n#endif\n").headers == ()


def test_a_torch_header_beside_the_source_is_the_users(project: Project) -> None:
    project.write("user/torch/extension.h", "#ifdef X\n#endif\n")
    assert walked(project, '#include "torch/extension.h"\n').headers == ()
    assert walked(project, INCLUDE).headers == (EXTENSION,)


def test_a_standard_name_in_a_folder_of_the_users_is_followed(project: Project) -> None:
    project.write("user/more/errno.h", "#if TORCH_LATER\nint x;\n#endif\n")
    found = walked(project, "#include <errno.h>\n" + INCLUDE)
    assert found == Opening(("errno.h", EXTENSION))


def test_two_files_of_one_text_that_may_be_read_once(project: Project) -> None:
    """g++ takes files of one text, size and date for the same, so that the second is not read."""
    project.write("user/more/own.h", '#pragma once\n#include "inner.h"\n')
    project.write("user/more/inner.h", INCLUDE)
    text = '#pragma once\n#include "inner.h"\n'
    assert (
        walked(
            project, '#include "own.h"\n#include "more/own.h"\n', own=text, inner="// none\n"
        ).headers
        == ()
    )


def test_macros_count_from_where_they_are_defined(project: Project) -> None:
    main = (
        f"{INCLUDE}#define FREE\n#include <c10/other.h>\n#include <vector>\n"
        f"#define MORE\n#include <ATen/ATen.h>\n"
    )
    assert walked(project, main) == Opening(
        (EXTENSION, "c10/other.h", "ATen/ATen.h"),
        (None, frozenset({"FREE"}), frozenset({"FREE", "MORE"})),
    )


@pytest.mark.parametrize(
    "name", ["TESTED", "DEFAULTED", "REMOVED", "MENTIONED", "TORCH_LATER", "OPS_H", "private"]
)
def test_the_compiler_refuses_a_macro_that_is_mentioned_and_reads_nothing(
    project: Project, name: str
) -> None:
    """Not even as text: in front of the headers the macro would be defined, and what else stands
    there not read.
    """
    if name == "private":
        project = Project(project.folder / "classes")
        project.write("site/torch/extension.h", "#pragma once\nclass C { private: int x; };\n")
    found = walked(project, f"#define {name} 1\n{INCLUDE}")
    assert found.macros == (frozenset({name}),)
    assert project.forced(found, 1) is None
    assert f"{name}" in project.said
    assert f"fatal error: {ninja.NOT_USED}: No such file or directory" in project.said


def test_a_header_that_goes_on_for_too_long(project: Project) -> None:
    assert walked(project, '#include "own.h"', own=f"/*{'x' * 70_000}*/\n{INCLUDE}").headers == ()
    names = [f"own{number}" for number in range(70)]
    main = "".join(f'#include "{name}.h"\n' for name in names)
    assert walked(project, main + INCLUDE, **dict.fromkeys(names, "")).headers == ()


def test_a_pipe_in_place_of_a_header_is_not_waited_for(project: Project) -> None:
    pipe = project.folder / "user/pipe.h"
    os.mkfifo(pipe)
    done = threading.Event()

    def read() -> None:
        assert opening.head(str(pipe)) == "\0"
        assert walked(project, '#include "pipe.h"\n' + INCLUDE).headers == ()
        done.set()

    threading.Thread(target=read, daemon=True).start()
    assert done.wait(10)


@pytest.mark.slow
@pytest.mark.parametrize("header", sorted(opening.MOVABLE))
@pytest.mark.parametrize(
    "flags", [["-std=c++17"], ["-std=c++20", "-O3", "-march=native", "-fopenmp"]]
)
def test_neutral_headers_and_torch_read_the_same_in_either_order(
    flags: list[str], header: str, tmp_path: Path
) -> None:
    """All at once, in some order, with the real torch, and with the macros of Python 3.12."""
    python = shutil.copytree(sysconfig.get_path("include"), tmp_path / "python")
    with (python / "pyconfig.h").open("a") as file:
        file.writelines(f"#ifndef {name}\n#define {name} 1\n#endif\n" for name in OF_PYTHON)
    torch_dir = os.path.dirname(__import__("torch").__file__)
    folders = [
        f"{torch_dir}/include",
        f"{torch_dir}/include/torch/csrc/api/include",
        python,
    ]
    toolkit = "/usr/local/cuda/include"
    libraries = library_headers()
    needed = f"{torch_dir}/include/{header}", f"{(libraries or [toolkit])[0]}/cusparse.h"
    if "/cuda/" in header and not all(map(os.path.isfile, needed)):
        pytest.skip("CUDA's headers are not there")
    names = sorted(opening.NEUTRAL | (opening.OF_CUDA if os.path.isdir(toolkit) else NONE))
    if header in opening.WITH_PYTHON:
        names = [name for name in names if name not in opening.BY_PYTHON]
    random.Random(0).shuffle(names)
    neutral = "".join(f"#include <{name}>\n" for name in names)
    words = [
        "g++",
        *flags,
        *(f"-isystem{path}" for path in (*folders, toolkit, *libraries)),
        "-x",
        "c++",
        "-",
        "-E",
    ]

    def read(text: str, *more: str) -> str:
        return subprocess.run(
            [*words, *more], input=text, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    torchs = f"#include <{header}>\n"
    first, last = by_file(read(neutral + torchs)), by_file(read(torchs + neutral))
    differ = {path for path in {*first, *last} if first.get(path) != last.get(path)}
    # The C library's headers share definitions, each of which is made by the first header that
    # needs it.
    shared = re.compile(r"/usr/(?:local/)?include/(?!c\+\+/)|/usr/lib/gcc/[^/]+/[^/]+/include/")
    assert [path for path in differ if not shared.match(path)] == [], f"in the order {names}"
    macros = [
        sorted(read(text, "-dM").split("\n")) for text in (neutral + torchs, torchs + neutral)
    ]
    assert macros[0] == macros[1], names


@pytest.mark.parametrize(
    "front",
    [
        "// old\r#define TESTED 5\n",
        "// x \\\0\n",
        "#include <string.h>\n#include <c10/other.h>\n",
        "#define and &&\n",
    ],
)
def test_what_g_plus_plus_reads_otherwise_ends_the_walk(project: Project, front: str) -> None:
    """A line that ends where only g++ sees it; a header that was not tried behind others; the name
    of an operator.
    """
    assert walked(project, front + INCLUDE).macros == ()


def test_a_name_with_dots_is_not_torchs(project: Project) -> None:
    project.write("evil.h", "int evil;\n")
    assert walked(project, "#include <string.h>\n#include <torch/../../evil.h>\n").macros == ()

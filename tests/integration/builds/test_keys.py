"""Each field of the request key: a change in it misses, and a request without a change hits."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from tests.support import calls
from tests.support.calls import Connection, load_request, module_source, request
from tests.support.daemons import Daemon
from warmcc.daemon.plan import requested
from warmcc.protocol import Built
from warmcc.request import KEYED_ENVIRONMENT, Interpreter, Request


@pytest.fixture(scope="module")
def connection(daemon: Daemon) -> Iterator[Connection]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    one = Connection(daemon, context)
    first = one.build(request())
    assert isinstance(first, Built), first
    yield one
    context.destroy(linger=0)


def outcome(connection: Connection, wanted: Request) -> str:
    answer = connection.build(wanted)
    assert isinstance(answer, Built), answer
    assert Path(answer.path).exists()
    return answer.outcome


def environment(**changes: str) -> dict[str, str]:
    return {**request().environment, **changes}


def test_an_equal_request_hits(connection: Connection) -> None:
    assert outcome(connection, request()) == "hit"


# A value for each field that differs from the tiny request's and still builds (or loads: nothing is
# loaded here).
CHANGED: dict[str, Any] = {
    "module_name": "tiny_v1",
    "cpp_sources": [module_source(43)],
    "functions": [],
    "extra_cflags": ["-DSOMETHING"],
    "extra_cuda_cflags": ["-DSOMETHING"],
    "extra_sycl_cflags": ["-DSOMETHING"],
    "extra_ldflags": ["-lm"],
    "extra_include_paths": ["/usr/share"],
    "with_cuda": False,
    "with_sycl": False,
    "is_python_module": False,
    "with_pytorch_error_handling": False,
}


# Fields whose change has a test of its own below, or that say how to build and not what.
ELSEWHERE = {"call", "sources", "interpreter", "environment", "build_directory", "is_standalone"}
NOT_KEYED = {"name", "verbose", "keep_intermediates", "use_pch"}
DECLINED = {"cuda_sources", "sycl_sources"}


def test_every_field_is_accounted_for() -> None:
    assert {*CHANGED, *ELSEWHERE, *NOT_KEYED, *DECLINED, "no_implicit_headers"} == set(
        Request.__struct_fields__
    )


def test_a_program_is_not_a_library(connection: Connection, tmp_path: Path) -> None:
    source = tmp_path / "program.cpp"
    source.write_text("int main() { return 0; }\n")
    library = connection.build(load_request([source], is_python_module=False))
    program = connection.build(load_request([source], is_python_module=False, is_standalone=True))
    assert (library.outcome, program.outcome) == ("miss", "miss")


@pytest.mark.parametrize("field", sorted(CHANGED))
def test_a_changed_field_misses(connection: Connection, field: str) -> None:
    changes = {field: CHANGED[field]}
    if field == "functions":  # pybind11 needs its header
        changes["cpp_sources"] = ["#include <pybind11/pybind11.h>\n"]
    assert outcome(connection, request(**changes)) == "miss"
    assert outcome(connection, request(**changes)) == "hit"


def test_docstrings_and_their_order_are_keyed() -> None:
    from warmcc.daemon.plan import keys

    toolchain = type("Toolchain", (), {"digest": "0" * 64, "cuda": None})()
    digests = {
        keys.request_key(request(functions=functions), toolchain)  # type: ignore[arg-type]
        for functions in (
            None,
            ["a", "b"],
            ["b", "a"],
            {"a": "x", "b": "y"},
            {"b": "y", "a": "x"},
            {"a": "y", "b": "x"},
        )
    }
    assert len(digests) == 6


# PATH counts only as far as it leads to compilers; CXX must name one.
ELSEWHERE_VARIABLES = {"PATH", "CXX", "GCC_EXEC_PREFIX", "SDKROOT"}
NVCCS = {
    "TORCH_CUDA_ARCH_LIST",
    "CUDA_VISIBLE_DEVICES",
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
    "NVCC_CCBIN",
}


@pytest.mark.parametrize("name", sorted(NVCCS))
def test_without_cuda_nvccs_variables_do_not_count(connection: Connection, name: str) -> None:
    plain = request(cpp_sources=[f"// {name}"])
    assert outcome(connection, plain) == "miss"
    assert (
        outcome(
            connection, msgspec.structs.replace(plain, environment=environment(**{name: "9.0"}))
        )
        == "hit"
    )


def test_which_gpus_are_visible_counts_where_they_are_asked() -> None:

    def variables(nvcc: bool | None = None, **more: Any) -> dict[str, str]:
        flags = more.pop("flags", [])
        asked = request(
            cuda_sources=["//"],
            extra_cuda_cflags=flags,
            environment={"CUDA_VISIBLE_DEVICES": "3", **more},
        )
        return (
            requested.keyed_environment(asked)
            if nvcc is None
            else requested.compile_environment(asked, nvcc=nvcc)
        )

    asked, known = {"CUDA_VISIBLE_DEVICES": "3"}, {"TORCH_CUDA_ARCH_LIST": "9.0"}
    assert variables() == asked  # stock asks for the architectures
    assert variables(nvcc=True) == variables(nvcc=False) == {}  # the answer is in the flags
    assert variables(**known) == known
    assert variables(nvcc=True, **known) == {}
    assert variables(**known, flags=["-arch=native"]) == asked | known  # nvcc asks
    assert variables(nvcc=True, **known, flags=["-arch=native"]) == asked
    assert variables(nvcc=True, NVCC_APPEND_FLAGS="-lineinfo") == {"NVCC_APPEND_FLAGS": "-lineinfo"}
    assert variables(nvcc=False, NVCC_APPEND_FLAGS="-lineinfo") == {}


def test_path_counts_with_cuda_as_far_as_it_leads_to_cuda(tmp_path: Path) -> None:
    """What a caller has in front of PATH makes no other request, and no precompiled header of its
    own.
    """

    def asked(path: str, **variables: str) -> Any:
        return request(with_cuda=True, environment={"PATH": path, **variables})

    nvcc = tmp_path / "toolkit" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.touch(0o755)
    plain, more = asked(f"{nvcc.parent}:/usr/bin"), asked(f"/somewhere:{nvcc.parent}:/bin")
    assert (
        requested.keyed_environment(plain)
        == requested.keyed_environment(more)
        == {requested.CUDA_HOME: str(tmp_path / "toolkit")}
    )
    assert (
        requested.keyed_environment(asked("/usr/bin", CUDA_HOME="/elsewhere"))[requested.CUDA_HOME]
        == "/elsewhere"
    )
    assert requested.compile_environment(plain, nvcc=False) == {}, "it is in the flags"


@pytest.mark.parametrize("name", sorted(set(KEYED_ENVIRONMENT) - ELSEWHERE_VARIABLES - NVCCS))
def test_a_changed_variable_misses(connection: Connection, name: str) -> None:
    value = {"SOURCE_DATE_EPOCH": "1"}.get(name, "/nonexistent")
    assert outcome(connection, request(environment=environment(**{name: value}))) == "miss"
    assert outcome(connection, request(environment=environment(**{name: value}))) == "hit"


def test_another_compiler_misses(connection: Connection, tmp_path: Path) -> None:
    """A driver with other content is another toolchain, found through PATH under the same name."""
    compiler = shutil.which("g++")
    assert compiler is not None
    wrapper = tmp_path / "c++"
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    wrapper.write_text(f'#!/bin/sh\nexec {compiler} "$@"\n')
    wrapper.chmod(0o755)
    assert outcome(connection, request(environment=environment(PATH=path))) == "miss"
    assert outcome(connection, request(environment=environment(PATH=path))) == "hit"
    wrapper.write_text(f'#!/bin/sh\n# upgraded\nexec {compiler} "$@"\n')
    assert outcome(connection, request(environment=environment(PATH=path))) == "miss"


def test_another_path_to_the_same_compiler_hits(connection: Connection) -> None:
    path = f"/nonexistent{os.pathsep}{os.environ['PATH']}"
    assert outcome(connection, request(environment=environment(PATH=path))) == "hit"


@pytest.mark.slow
def test_another_interpreter_misses(connection: Connection, tmp_path: Path) -> None:
    link = tmp_path / "python"
    link.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    link.chmod(0o755)
    other = msgspec.structs.replace(request().interpreter, executable=str(link))
    assert isinstance(other, Interpreter)
    assert outcome(connection, request(interpreter=other)) == "miss"


def test_what_does_not_change_the_result_hits(connection: Connection, tmp_path: Path) -> None:
    assert outcome(connection, request(verbose=True)) == "hit"
    assert outcome(connection, request(build_directory=str(tmp_path))) == "hit"
    assert outcome(connection, request(keep_intermediates=False)) == "hit"
    assert outcome(connection, request(use_pch=True)) == "hit"
    assert (
        outcome(connection, request(environment=environment(MAX_JOBS="1", TMPDIR="/var/tmp")))
        == "hit"
    )


def test_a_build_directory_counts_where_flags_can_name_its_files(
    connection: Connection, tmp_path: Path
) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for number, folder in enumerate(folders):
        folder.mkdir()
        (folder / "value.h").write_text(f"#define VALUE {number}\n")
    source = '#include "value.h"\n' + module_source(7).replace(
        "PyLong_FromLong(7)", "PyLong_FromLong(VALUE)"
    )
    built = [
        connection.build(
            request(cpp_sources=[source], extra_cflags=["-I."], build_directory=str(folder))
        )
        for folder in folders
    ]
    assert [answer.outcome for answer in built] == ["miss", "miss"]
    assert built[0].path != built[1].path


def test_going_back_to_an_earlier_source_hits(connection: Connection, tmp_path: Path) -> None:
    """A → B → A of a file costs two compiles, also when A comes back with an older time."""
    source = tmp_path / "module.cpp"
    seen = []
    for answer, when in ((1, 1000), (2, 2000), (1, 500)):
        source.write_text(module_source(answer))
        os.utime(source, (when, when))
        seen.append(outcome(connection, load_request([source])))
    assert seen == ["miss", "miss", "hit"]


def test_an_edited_header_misses_and_an_older_file_does_too(
    connection: Connection, tmp_path: Path
) -> None:
    header = tmp_path / "value.h"
    source = tmp_path / "module.cpp"
    source.write_text(
        '#include "value.h"\n'
        + module_source().replace("PyLong_FromLong(42)", "PyLong_FromLong(VALUE)")
    )
    seen = []
    for value, when in ((1, 2000), (2, 1000), (2, 3000)):
        header.write_text(f"#define VALUE {value}\n")
        os.utime(header, (when, when))
        seen.append(outcome(connection, load_request([source])))
    assert seen == ["miss", "miss", "hit"]


def test_a_new_header_that_comes_first_misses(connection: Connection, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    (second / "value.h").write_text("#define VALUE 1\n")
    text = "#include <value.h>\n" + module_source().replace(
        "PyLong_FromLong(42)", "PyLong_FromLong(VALUE)"
    )
    wanted = request(cpp_sources=[text], extra_include_paths=[str(first), str(second)])
    assert [outcome(connection, wanted), outcome(connection, wanted)] == ["miss", "hit"]
    (first / "value.h").write_text("#define VALUE 2\n")
    assert outcome(connection, wanted) == "miss"


def test_an_edited_library_misses(connection: Connection, tmp_path: Path) -> None:
    """What the linker reads is part of the closure."""
    import subprocess

    library = tmp_path / "libvalue.a"
    seen = []
    for value in (1, 2):
        part = tmp_path / "value.c"
        part.write_text(f"int value(void) {{ return {value}; }}\n")
        subprocess.run(["gcc", "-fPIC", "-c", part, "-o", tmp_path / "value.o"], check=True)
        library.unlink(missing_ok=True)
        subprocess.run(["ar", "rc", library, tmp_path / "value.o"], check=True)
        text = 'extern "C" int value(void);\n' + module_source().replace(
            "PyLong_FromLong(42)", "PyLong_FromLong(value())"
        )
        wanted = request(cpp_sources=[text], extra_ldflags=[f"-L{tmp_path}", "-lvalue"])
        seen += [outcome(connection, wanted), outcome(connection, wanted)]
    assert seen == ["miss", "hit", "miss", "hit"]


@pytest.mark.parametrize("where", ["source", "header", "include"])
def test_what_the_assembler_reads_is_part_of_a_result(
    where: str, connection: Connection, tmp_path: Path
) -> None:
    """The compiler does not report ``.incbin``; the assembler does."""
    data, source, header = tmp_path / "data", tmp_path / "a.cpp", tmp_path / "a.h"
    directive = (
        f'asm(".section .rodata\\n.globl from_file\\nfrom_file: .incbin \\"{data}\\"\\n.byte '
        f'0\\n.text");\n'
    )
    if where == "include":
        directive = (
            f'asm(".section .rodata\\n.globl from_file\\nfrom_file: .include '
            f'\\"{data}\\"\\n.text");\n'
        )
    header.write_text(directive)
    declared = 'extern "C" const char from_file[];\n'
    source.write_text(
        (directive if where != "header" else '#include "a.h"\n')
        + declared
        + module_source(name="read").replace("42", "from_file[0]")
    )
    wanted = load_request([source], name="read", module_name="read")
    for letter in "AB":
        data.write_text(f".byte {ord(letter)}\n" if where == "include" else letter)
        answer = connection.build(wanted)
        assert isinstance(answer, Built) and answer.outcome == "miss", answer
        assert calls.load(answer, "read").answer() == ord(letter)
        assert outcome(connection, wanted) == "hit"

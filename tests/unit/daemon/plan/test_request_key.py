"""Keys: what changes the key of a request or of a unit, and what does not."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from warmcc import digest
from warmcc.daemon.plan import keys, requested
from warmcc.daemon.toolchain import Toolchain, cuda, processor
from warmcc.request import KEYED_ENVIRONMENT, PASSED_ENVIRONMENT, Interpreter, Request

PYTHON = Interpreter("/opt/bin/python", ".cpython-311.so", "/opt/torch", "2.12.0")
TOOLCHAIN = Toolchain(
    digest="1" * 64, argv=["/usr/bin/g++"], family="gcc", version="12", include_folders=[],
    library_folders=[], assembler_tells=True, roots=[], torch_dir="/opt/torch",
    torch_version="2.12.0",
    linkers=[],
)  # fmt: skip
TOOLKIT = cuda.Cuda("2" * 64, "/cuda/bin/nvcc", "/cuda", "/cuda", "12.9", {}, [], ([], []))
WITH_CUDA = dataclasses.replace(TOOLCHAIN, cuda=TOOLKIT)
OTHER_CUDA = dataclasses.replace(TOOLCHAIN, cuda=dataclasses.replace(TOOLKIT, digest="3" * 64))
OTHER = dataclasses.replace(TOOLCHAIN, digest="4" * 64)

# Another value for each field that a result depends on, and for each that it does not depend on.
KEYED: dict[str, Any] = {
    "call": "load", "module_name": "other", "sources": ["/a.cpp"], "cpp_sources": ["int b;"],
    "cuda_sources": ["int b;"], "sycl_sources": ["int b;"], "functions": ["f"],
    "extra_cflags": ["-DX"],
    "extra_cuda_cflags": ["-DX"], "extra_sycl_cflags": ["-DX"], "extra_ldflags": ["-lm"],
    "extra_include_paths": ["/usr/share"], "with_cuda": False, "with_sycl": False,
    "is_python_module": False,
    "is_standalone": True, "with_pytorch_error_handling": False, "no_implicit_headers": True,
}  # fmt: skip
NOT_KEYED: dict[str, Any] = {
    "name": "other", "build_directory": "/other", "verbose": True, "keep_intermediates": False,
    "use_pch": True,
}  # fmt: skip


def request(**changes: Any) -> Request:
    fields: dict[str, Any] = {
        "call": "load_inline",
        "name": "tiny",
        "module_name": "tiny",
        "interpreter": PYTHON,
        "environment": {},
        "cpp_sources": ["int a;"],
    }
    return Request(**{**fields, **changes})


def key(toolchain: Toolchain = TOOLCHAIN, **changes: Any) -> str:
    return keys.request_key(request(**changes), toolchain)


def unit(
    *,
    cflags: str = "-O2",
    post_cflags: str = "-fPIC",
    source: str = "/tmp/main.cpp",
    text: str | None = "int a;",
    toolchain: Toolchain = TOOLCHAIN,
    **changes: Any,
) -> str:
    return keys.unit_key(cflags, post_cflags, source, text, request(**changes), toolchain)


# ---------------------------------------------------------------------- the request's


def test_every_field_is_said_to_be_keyed_or_not() -> None:
    assert {*KEYED, *NOT_KEYED, "interpreter", "environment"} == set(Request.__struct_fields__)


@pytest.mark.parametrize("field", KEYED)
def test_a_field_that_changes_the_result_changes_the_key(field: str) -> None:
    assert key(**{field: KEYED[field]}) != key()
    assert key(**{field: KEYED[field]}) == key(**{field: KEYED[field]})


@pytest.mark.parametrize("field", NOT_KEYED)
def test_a_field_that_does_not_change_the_result_keeps_the_key(field: str) -> None:
    assert getattr(request(), field) != NOT_KEYED[field]
    assert key(**{field: NOT_KEYED[field]}) == key()


def test_the_key_of_equal_requests_is_one_digest() -> None:
    assert key() == key()
    assert digest.is_digest(key())


def test_no_two_fields_can_be_exchanged() -> None:
    """A text is another one in another field."""
    fields = [name for name, value in KEYED.items() if isinstance(value, list)]
    same = {key(cpp_sources=[], **{field: ["/a"]}) for field in fields if field != "cpp_sources"}
    assert len(same) == len(fields) - 1


@pytest.mark.parametrize("field", ["executable", "abi", "torch_dir"])
def test_another_python_or_torch_changes_the_key(field: str) -> None:
    assert key(interpreter=msgspec.structs.replace(PYTHON, **{field: "/other"})) != key()


def test_whether_torch_is_imported_already_keeps_the_key() -> None:
    assert key(interpreter=msgspec.structs.replace(PYTHON, torch_loaded=None)) == key()


@pytest.mark.parametrize("name", sorted({*KEYED_ENVIRONMENT} - {"PATH"}))
def test_a_variable_that_a_build_depends_on_changes_the_key(name: str) -> None:
    kernel = {"cuda_sources": ["int c;"]}  # nvcc's variables count where nvcc has something to do
    changed = key(**kernel, environment={name: "1"})
    assert changed != key(**kernel)
    assert changed != key(**kernel, environment={name: "2"})


@pytest.mark.parametrize("name", ["PATH", "SOMETHING_ELSE", *PASSED_ENVIRONMENT])
def test_any_other_variable_keeps_the_key(name: str) -> None:
    assert key(environment={name: "/1"}) == key()


def test_a_build_directory_counts_where_a_flag_may_name_a_file_in_it() -> None:
    relative = {"extra_cflags": ["-Iinclude"]}
    folders = {key(**relative, build_directory=folder) for folder in ("/a", "/b", None)}
    assert len(folders) == 3


def test_a_build_directory_counts_not_for_flags_of_nvcc_that_name_no_file() -> None:
    for flags, count in ((["--use_fast_math", "-Xcompiler -O3"], 1), (["-Iinclude"], 3)):
        asked = {"cuda_sources": ["int i;"], "extra_cuda_cflags": flags}
        found = {key(**asked, build_directory=folder) for folder in ("/a", "/b", None)}
        assert len(found) == count


def test_a_build_directory_counts_where_a_source_includes_in_quotes() -> None:
    quoted = {"cpp_sources": ['#include "mine.h"']}
    assert key(**quoted, build_directory="/a") != key(**quoted, build_directory="/b")
    extensions = {"TORCH_EXTENSIONS_DIR": "/e"}
    assert key(**quoted, environment=extensions) == key(**quoted, build_directory="/e/tiny")


def test_the_two_meanings_of_a_build_directory_are_apart() -> None:
    """Only a source that includes in quotes reads a header there, only a flag names a folder."""
    parts = keys.readable(request(extra_cflags=["-Ia"], build_directory="/a"), TOOLCHAIN)
    assert parts["folder of relative paths"] == "/a"
    assert "folder of quoted includes" not in parts
    quoted = request(cpp_sources=['#include "a.h"'], build_directory="/a")
    parts = keys.readable(quoted, TOOLCHAIN)
    assert parts["folder of quoted includes"] == "/a"
    assert "folder of relative paths" not in parts


def test_another_toolchain_or_toolkit_changes_the_key() -> None:
    toolchains = (TOOLCHAIN, OTHER, WITH_CUDA, OTHER_CUDA)
    assert len({key(toolchain) for toolchain in toolchains}) == 4


def test_functions_count_in_their_order_and_with_their_docstrings() -> None:
    asked: list[Any] = [
        None, ["a", "b"], ["b", "a"], {"a": "x", "b": "y"}, {"b": "y", "a": "x"},
        {"a": "y", "b": "x"},
        {"a": "x"}, [],
    ]  # fmt: skip
    assert len({key(functions=functions) for functions in asked}) == len(asked)


@pytest.mark.parametrize("of", [key, unit])
def test_another_generation_of_the_daemon_changes_every_key(
    of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = of()
    monkeypatch.setattr(keys, "GENERATION", keys.GENERATION + 1)
    assert of() != before


# ---------------------------------------------------------------------- for people


def test_what_a_key_is_made_of_can_be_read() -> None:
    asked = request(
        functions={"f": "says so"},
        environment={"CXX": "g++", "HOME": "/home/me"},
        cpp_sources=['#include "a.h"'],
        extra_cflags=["-Ia"],
        build_directory="/a",
    )
    assert keys.readable(asked, WITH_CUDA) == {
        "call": "load_inline",
        "module_name": "tiny",
        "cpp_sources": "['#include \"a.h\"']",
        "functions": "[('f', 'says so')]",
        "extra_cflags": "['-Ia']",
        "is_python_module": "True",
        "with_pytorch_error_handling": "True",
        "Python": "['/opt/bin/python', '.cpython-311.so']",
        "torch": "/opt/torch",
        "folder of relative paths": "/a",
        "folder of quoted includes": "/a",
        "toolchain": "1" * 64,
        "CUDA toolkit": "2" * 64,
        "variable CXX": "g++",
    }
    assert "CUDA toolkit" not in keys.readable(asked, TOOLCHAIN)


def test_values_of_macros_cannot_be_read() -> None:
    asked = request(extra_cflags=["-DKEY=secret"], environment={"CXX": "g++ -DKEY=secret"})
    told = keys.readable(asked, TOOLCHAIN)
    assert told["extra_cflags"] == "['-DKEY=…']"
    assert told["variable CXX"] == "g++ -DKEY=…"


def test_long_values_are_told_as_digests() -> None:
    def told(length: int) -> str:
        return keys.readable(request(environment={"CXX": "x" * length}), TOOLCHAIN)["variable CXX"]

    assert told(100) == "x" * 100
    assert told(101) == f"sha256 {digest.of_value('x' * 101)[:12]}"
    assert told(102) != told(101)


# ---------------------------------------------------------------------- the unit's


def test_flags_and_text_of_a_unit_are_in_its_key() -> None:
    found = {
        unit(),
        unit(cflags="-O3"),
        unit(post_cflags="-fpic"),
        unit(cflags="-fPIC", post_cflags="-O2"),
        unit(text="int b;"),
        unit(text=None),
        unit(text=None, source="/tmp/other.cpp"),
        unit(text=None, source="/tmp/main.cu"),
        unit(text="/tmp/main.cpp"),
        unit(toolchain=OTHER),
        unit(environment={"CPATH": "/a"}),
    }
    assert len(found) == 11
    assert all(digest.is_digest(one) for one in found)


def test_where_an_inline_source_was_written_is_not_in_its_key() -> None:
    assert unit(source="/one/main.cpp") == unit(source="/two/other.cpp")


def test_what_only_the_request_depends_on_is_not_in_a_units_key() -> None:
    for field in ("module_name", "functions", "extra_ldflags", "is_python_module"):
        assert unit(**{field: KEYED[field]}) == unit()


def test_folders_that_a_unit_may_look_into_are_in_its_key() -> None:
    for changes in ({"extra_cflags": ["-Ia"]}, {"cpp_sources": ['#include "a.h"']}):
        one = unit(**changes, build_directory="/a")
        assert one != unit(**changes, build_directory="/b")
        assert one != unit(**changes)
    assert unit(build_directory="/a") == unit(build_directory="/b")


@pytest.mark.parametrize("source", ["/tmp/cuda.cu", "/tmp/cuda.cuh"])
def test_what_nvcc_is_belongs_to_its_units(source: str) -> None:
    found = {unit(source=source, toolchain=one) for one in (TOOLCHAIN, WITH_CUDA, OTHER_CUDA)}
    assert len(found) == 3
    appended = unit(source=source, cuda_sources=["//"], environment={"NVCC_APPEND_FLAGS": "-O1"})
    assert appended != unit(source=source, cuda_sources=["//"])


@pytest.mark.parametrize("source", ["/tmp/main.cpp", "/tmp/cuda.cu.cpp", "/tmp/main.cc"])
def test_what_nvcc_is_does_not_belong_to_other_units(source: str) -> None:
    assert unit(source=source, toolchain=WITH_CUDA) == unit(source=source, toolchain=OTHER_CUDA)
    assert unit(source=source, toolchain=WITH_CUDA) == unit(source=source)
    appended = unit(source=source, cuda_sources=["//"], environment={"NVCC_APPEND_FLAGS": "-O1"})
    assert appended == unit(source=source, cuda_sources=["//"])


def test_an_edit_of_a_comment_keeps_the_key_of_a_unit() -> None:
    assert unit(text="int a; // one") == unit(text="int a; // two")
    assert unit(text="int a; // one") != unit(text="int b; // one")
    assert unit(text="int a;\n// one") != unit(text="// one\nint a;")  # __LINE__ is another one


@pytest.mark.parametrize(
    "changes",
    [
        {"cflags": "-O2 -Wall"},
        {"post_cflags": "-g"},
        {"source": "a.cu", "extra_cuda_cflags": ["-lineinfo"]},
        {"source": "a.cu", "environment": {"NVCC_PREPEND_FLAGS": "-lineinfo"}},
        {"source": "a.cu", "environment": {"NVCC_APPEND_FLAGS": "-lineinfo"}},
    ],
)
def test_comments_count_where_a_flag_may_have_the_compiler_read_them(
    changes: dict[str, Any],
) -> None:
    assert unit(text="int a; // one", **changes) != unit(text="int a; // two", **changes)


@pytest.mark.parametrize("given", [{"extra_cflags": ["-Wall"]}, {"extra_cuda_cflags": ["-G"]}])
def test_flags_that_a_unit_does_not_get_keep_its_key(given: dict[str, Any]) -> None:
    assert unit(text="int a; // one") == unit(text="int a; // two", **given)
    if "extra_cflags" in given:
        assert unit(source="a.cu", text="// one") == unit(source="a.cu", text="// two", **given)


def test_the_processor_counts_for_what_nvcc_has_built_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    native = {"source": "a.cu", "extra_cuda_cflags": ["-Xcompiler=-march=native"]}
    here = unit(**native)
    monkeypatch.setattr(processor, "identity", lambda: "another")
    assert unit(**native) != here


def test_a_comment_in_the_path_of_a_file_is_none() -> None:
    assert unit(text=None, source="/a//b.cpp") != unit(text=None, source="/a//c.cpp")


def test_the_processor_is_in_the_keys_of_what_is_built_for_it() -> None:
    native = {"extra_cflags": ["-march=native"]}
    told = keys.readable(request(**native), TOOLCHAIN)
    assert told[f"variable {requested.PROCESSOR}"] == processor.identity()
    assert f"variable {requested.PROCESSOR}" not in keys.readable(request(), TOOLCHAIN)


def test_the_processor_counts_for_units_that_are_built_for_it() -> None:
    native: dict[str, Any] = {"extra_cflags": ["-march=native"]}
    assert unit(cflags="-O2 -march=native", **native) != unit(cflags="-O2 -march=native")
    assert unit(cflags="-O2", **native) == unit(cflags="-O2")
    assert unit(cflags="-O2", environment={"CXX": "g++ -march=native"}) != unit(
        cflags="-O2", environment={"CXX": "g++ -march=haswell"}
    )
    cxx = {"environment": {"CXX": "g++ -march=native"}}
    asked = requested.compile_environment(request(**cxx), nvcc=False, flags="-O2")
    assert asked[requested.PROCESSOR] == processor.identity()


def test_a_key_that_nobody_asks_for() -> None:
    """A result that is its caller's alone is kept under another key each time."""
    one, other = keys.unpublished_key(key()), keys.unpublished_key(key())
    assert len({one, other, key()}) == 3
    assert digest.is_digest(one)

"""The key of a call on any machine: each field and variable is decided, and what counts differs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.support.calls import request
from warmcc.client.bundles import key
from warmcc.client.bundles.layout import key_of
from warmcc.request import KEYED_ENVIRONMENT, Request


def of(wanted: Request) -> str:
    sources = dict.fromkeys(wanted.sources, "0" * 64)
    return key_of(key.parts(key.values(wanted, sources)))


def test_every_field_of_a_request_is_decided() -> None:
    decided = [*key.KEYED, *key.OTHERWISE, *key.LEFT_OUT]
    assert sorted(decided) == sorted(Request.__struct_fields__)


def test_every_variable_is_decided() -> None:
    decided = [
        *key.VARIABLES, *key.CUDA_VARIABLES, *key.COMPILERS, *key.VARIABLES_LEFT_OUT,
    ]  # fmt: skip
    assert sorted(decided) == sorted(KEYED_ENVIRONMENT)


COUNTS: list[dict[str, Any]] = [
    {"module_name": "tiny_v1"},
    {"cpp_sources": ["int x;"]},
    {"cuda_sources": ["int x;"]},
    {"functions": ["f"]},
    {"functions": {"f": "doc"}},
    {"extra_cflags": ["-O2"]},
    {"extra_cuda_cflags": ["-O2"]},
    {"extra_ldflags": ["-lm"]},
    {"extra_include_paths": ["/x"]},
    {"with_cuda": True},
    {"with_cuda": False, "extra_cflags": ["-DX"]},
    {"is_python_module": False},
    {"with_pytorch_error_handling": False},
    {"no_implicit_headers": False},
    {"environment": {"CPATH": "/opt/include"}},
    {"environment": {"LIBRARY_PATH": "/opt/lib"}},
    {"environment": {"LD_RUN_PATH": "/opt/lib"}},
    {"environment": {"CXX": "g++ -DX"}},
]


@pytest.mark.parametrize("changes", COUNTS, ids=str)
def test_what_changes_the_result_counts(changes: dict[str, Any]) -> None:
    keys = {of(request(environment={})), of(request(**{"environment": {}, **changes}))}
    assert len(keys) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "other"},
        {"build_directory": "/x"},
        {"verbose": True},
        {"environment": {"PATH": "/x", "CXX": "clang++", "CUDA_HOME": "/x"}},
        {"environment": {"TORCH_CUDA_ARCH_LIST": "9.0", "CUDA_VISIBLE_DEVICES": "1"}},
        {"environment": {"LIBRARY_PATH": "/usr/local/cuda/lib64/stubs"}},
    ],
    ids=str,
)
def test_where_and_by_what_does_not_count(changes: dict[str, Any]) -> None:
    assert of(request(environment={})) == of(request(**{"environment": {}, **changes}))


def test_variables_of_nvcc_count_where_it_runs() -> None:
    flags = {"NVCC_APPEND_FLAGS": "-G"}
    assert of(request(environment={})) == of(request(environment=flags))
    plain = request(environment={}, cuda_sources=["int x;"])
    assert of(plain) != of(msgspec.structs.replace(plain, environment=flags))


def test_the_order_of_functions_counts() -> None:
    assert of(request(functions={"f": "", "g": ""})) != of(request(functions={"g": "", "f": ""}))


def test_sources_count_by_their_names_and_contents() -> None:
    def of_file(path: str, content: str) -> str:
        wanted = request(call="load", cpp_sources=[], sources=[path])
        return key_of(key.parts(key.values(wanted, {path: content})))

    assert of_file("/a/k.cpp", "1") == of_file("/b/k.cpp", "1")
    assert of_file("/a/k.cpp", "1") != of_file("/a/k.cpp", "2")
    assert of_file("/a/k.cpp", "1") != of_file("/a/k.cu", "1")


def test_macros_are_shown_without_their_values() -> None:
    flags = ["-O2", "-DKEY=s3cret", "-DTEXT='s3cret'", '-DTEXT="s3cret"', "-D", "OTHER=s3cret"]
    variables = {"CXX": "g++ -DX=s3cret", "CPATH": "/x"}
    wanted = request(extra_cflags=flags, extra_ldflags=["-Wl,-rpath=/x"], environment=variables)
    found = key.values(wanted, {})
    shown = key.shown(found)
    assert shown["extra_cflags"].startswith("['-O2', '-DKEY=…', ")
    assert shown["extra_ldflags"] == "['-Wl,-rpath=/x']" and shown["variable CPATH"] == "/x"
    assert "s3cret" not in f"{shown}{key.parts(found)}"

"""The plan of ``compile``: which requests it is for, and what becomes of them."""

from __future__ import annotations

from typing import Any

import pytest

from warmcc.daemon.plan import declines
from warmcc.request import Interpreter, Request

PYTHON = Interpreter("/usr/bin/python3", ".so", "/torch")


def request(**fields: Any) -> Request:
    usual = {"name": "a.cpp", "module_name": "a.so", "extra_ldflags": ["-shared"]}
    return Request(
        call="compile", interpreter=PYTHON, environment={}, is_python_module=False,
        **{**usual, **fields},
    )  # fmt: skip


@pytest.mark.parametrize(
    "fields",
    [
        {"cpp_sources": ["int x;"]},
        {"cpp_sources": ["int x;"], "module_name": "a.o", "extra_ldflags": []},
        {"sources": ["/a.cpp"], "name": "a.o", "module_name": "a.o", "extra_ldflags": []},
    ],
)
def test_one_source(fields: dict[str, Any]) -> None:
    assert declines.why_declined(request(**fields)) is None


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"cpp_sources": ["int x;", "int y;"]},
        {"cpp_sources": ["int x;"], "sources": ["/a.cpp"]},
        {"cpp_sources": ["int x;"], "module_name": "a.o"},
        {"cpp_sources": ["int x;"], "extra_ldflags": []},
        {"cpp_sources": ["int x;"], "name": "build.ninja"},
        {"cpp_sources": ["int x;"], "name": "../a.cpp"},
        {"cpp_sources": ["int x;"], "cuda_sources": ["int y;"]},
        {"sources": ["a.cpp"]},
    ],
)
def test_anything_else_is_declined(fields: dict[str, Any]) -> None:
    assert declines.why_declined(request(**fields)) is not None

"""Which requests are left to stock torch, and for which reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.calls import request
from warmcc.daemon.plan import declines

KERNEL = {"cuda_sources": ["__global__ void k() {}"]}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        (KERNEL, None),
        ({"name": "a;b", "module_name": "a;b"}, "invalid extension name"),
        ({"call": "load", "cpp_sources": [], "sources": ["/a/k.hip"]}, "HIP sources"),
        ({"call": "compile", "cpp_sources": [], "sources": ["/a/b.cpp"]}, None),
        ({"call": "compile", "cpp_sources": [], "sources": ["b.cpp"]}, "compile takes one source"),
        (
            {"call": "compile", "cpp_sources": [], "sources": ["/a/b.cpp", "/c.cpp"]},
            "compile takes",
        ),
        ({"call": "compile", "cpp_sources": [], "sources": []}, "compile takes one source"),
        ({"with_sycl": True}, "SYCL sources"),
        ({"sycl_sources": ["//"]}, "SYCL sources"),
        ({"extra_cflags": ["@file"]}, "unsupported flags"),
        ({"extra_ldflags": ["-specs=x"]}, "unsupported flags"),
        ({**KERNEL, "extra_cuda_cflags": ["-rdc=true"]}, "unsupported nvcc flags"),
        ({"extra_cuda_cflags": ["-rdc=true"]}, None),  # nothing for nvcc to do
        (
            {**KERNEL, "environment": {"NVCC_APPEND_FLAGS": "--keep"}},
            "unsupported nvcc flags",
        ),
        (
            {**KERNEL, "environment": {"NVCC_CCBIN": "/opt/gcc/bin/g++"}},
            "NVCC_CCBIN names the host compiler",
        ),
        ({"environment": {"NVCC_CCBIN": "/opt/gcc/bin/g++"}}, None),
    ],
)
def test_what_is_left_to_stock(changes: dict[str, Any], reason: str | None) -> None:
    found = declines.why_declined(request(**changes))
    assert found is None if reason is None else found is not None and found[0].startswith(reason)


def test_a_host_compiler_that_is_a_folder(tmp_path: Path) -> None:
    named = request(**KERNEL, environment={"CC": str(tmp_path)})
    assert declines.why_declined(named) == ("CC names a folder", True)

"""The commands of a ``setup.py``, by those of a call."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from warmcc.daemon.plan.planner import Trial
from warmcc.daemon.plan.stock import Plan
from warmcc.daemon.serve import packages
from warmcc.request import Interpreter, Request, one_name

CFLAGS = "-DTORCH_EXTENSION_NAME=a -isystem /t/include -isystem /p -fPIC -std=c++20"
CUDA = f"{CFLAGS} -D__CUDA_NO_HALF_OPERATORS__ -gencode=arch=compute_90,code=sm_90"


def call(executable: str, *, cuda: bool, builds: bool = True) -> Trial:
    nothing: Any = None
    request = Request(
        call="load_inline", name="a", module_name="a",
        interpreter=Interpreter(executable, ".so", "/t"), environment={"CC": "gcc"},
        cuda_sources=["x"] if cuda else [],
    )  # fmt: skip
    plan = Plan(
        "", {}, [], "", cxx="c++", cflags=CFLAGS, nvcc="nvcc", cuda_cflags=CUDA, ldflags="",
        target="a", units=[],
    )  # fmt: skip
    toolchain: Any = type("Toolchain", (), {"cuda": None})
    return Trial(request, toolchain if builds else nothing, plan if builds else None)


@pytest.mark.parametrize("cuda", [False, True])
def test_folders_come_by_i_and_pythons_flags_first(
    cuda: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = {"CFLAGS": "-g -O3", "CCSHARED": "-fPIC"}
    monkeypatch.setattr("sysconfig.get_config_var", flags.get)
    found = packages.trial(call(one_name(sys.executable), cuda=cuda), ["-O2"])
    assert found is not None and found.plan is not None
    assert found.request.environment == {"CC": "gcc"}
    if cuda:
        assert " ".join(found.request.extra_cuda_cflags) == (
            "-I/t/include -I/p -fPIC -D__CUDA_NO_HALF_OPERATORS__ -O2 -DTORCH_EXTENSION_NAME=a"
            " -std=c++20 -gencode=arch=compute_90,code=sm_90"
        )
        assert found.plan.units[0].cuda and not found.request.extra_cflags
    else:
        assert " ".join(found.request.extra_cflags) == (
            "-g -O3 -fPIC -I/t/include -I/p -O2 -DTORCH_EXTENSION_NAME=a -std=c++20"
        )
        assert found.plan.cflags == " ".join(found.request.extra_cflags)


def test_nothing_is_known_of_another_pythons_flags() -> None:
    assert packages.trial(call("/usr/bin/another", cuda=False), []) is None
    assert packages.trial(call(one_name(sys.executable), cuda=False, builds=False), []) is None

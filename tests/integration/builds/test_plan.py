"""The flags of a unit equal those that stock would write into build.ninja for the same call, to the
byte.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.calls import request
from warmcc.daemon.plan import requested
from warmcc.daemon.plan.stock import Plan
from warmcc.daemon.plan.zygotes import StockError, ZygotePool
from warmcc.request import Request

_FOLDER = tempfile.TemporaryDirectory(prefix="warmcc plan ")  # a space, on purpose
SOURCES = [os.path.join(_FOLDER.name, name) for name in ("one.cpp", "two.cc")]
for _source in SOURCES:
    Path(_source).touch()
INLINE: dict[str, Any] = {"cpp_sources": ["int f() { return 1; }"], "no_implicit_headers": False}

# Fields of a request, and variables of its environment.
CALLS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "plain": ({}, {}),
    "functions as a list": ({"functions": ["f", "g"]}, {}),
    "functions with docstrings": ({"functions": {"f": "does f"}}, {}),
    "without error handling": ({"functions": ["f"], "with_pytorch_error_handling": False}, {}),
    "no implicit headers": ({"no_implicit_headers": True}, {}),
    "several sources": ({"cpp_sources": ["int a;", "int b;\n"]}, {}),
    "another module name": ({"module_name": "tiny_v3"}, {}),
    "cflags": ({"extra_cflags": ["-O3", "-march=native", "-std=c++17"]}, {}),
    "quoting": (
        {"extra_cflags": ['-DTEXT="a b"', "-DOTHER='x y'", "-DCASH='$$HOME'", " -O1 "]},
        {},
    ),
    "cuda cflags without cuda": ({"extra_cuda_cflags": ["-O3"]}, {}),
    "ldflags": ({"extra_ldflags": ["-lm", "-L/opt/x", "-Wl,-rpath,/opt/x"]}, {}),
    "cudnn in ldflags": ({"extra_ldflags": ["-lcudnn"]}, {}),
    "include paths": ({"extra_include_paths": ["/opt/a", "/opt/with space"]}, {}),
    "no python module": ({"is_python_module": False}, {}),
    "with_cuda forced off": ({"with_cuda": False, "with_sycl": False}, {}),
    "CXX by path": ({}, {"CXX": "/usr/bin/g++"}),
    "CXX with an option": ({}, {"CXX": "g++ -m64"}),
    "CC": ({}, {"CC": "gcc"}),
    "MAX_JOBS": ({}, {"MAX_JOBS": "1"}),
    "no wrapper": ({}, {"TORCH_NO_COMPILER_WRAPPER": "1"}),
    "no ABI check": ({}, {"TORCH_DONT_CHECK_COMPILER_ABI": "1"}),
    "arch list": ({}, {"TORCH_CUDA_ARCH_LIST": "9.0"}),
    "CUDA_HOME": ({}, {"CUDA_HOME": "/opt/cuda"}),
    "load": ({"call": "load", "sources": SOURCES}, {}),
    "load, standalone": (
        {"call": "load", "sources": SOURCES, "is_standalone": True, "is_python_module": False},
        {},
    ),
    "load, flags": (
        {"call": "load", "sources": SOURCES, "extra_cflags": ["-g"], "extra_ldflags": ["-s"]},
        {},
    ),
}

# A fresh, ordinary process: stock with nothing patched but running ninja and importing what that
# would have made.
STOCK = """
import json, os, shutil, sys, tempfile
import torch.utils.cpp_extension as e
e._run_ninja_build = lambda *a, **k: None
e._import_module_from_library = lambda *a, **k: None
e.verify_ninja_availability = lambda: None
answers, original = {}, dict(os.environ)
for name, call, arguments, environment in json.load(sys.stdin):
    os.environ.clear()
    os.environ.update(environment)
    e.CUDA_HOME = e._find_cuda_home()
    e.JIT_EXTENSION_VERSIONER.entries.clear()  # each call is the first of its name
    scratch = tempfile.mkdtemp()
    getattr(e, call)(build_directory=scratch, **arguments)
    texts = {n: open(os.path.join(scratch, n)).read().replace(scratch, "SCRATCH")
             for n in os.listdir(scratch)}
    shutil.rmtree(scratch)
    answers[name] = {n: t for n, t in texts.items() if n in ("build.ninja", "main.cpp")}
print("ANSWERS" + json.dumps(answers))
"""
_INLINE_ONLY = ("cpp_sources", "functions", "with_pytorch_error_handling", "no_implicit_headers")


def as_request(changes: dict[str, Any], variables: dict[str, str]) -> Request:
    plain = {**INLINE, **changes} if changes.get("call") != "load" else changes
    if changes.get("call") == "load":
        plain = {**plain, "cpp_sources": [], "no_implicit_headers": False}
    made = request(**plain)
    return msgspec.structs.replace(made, environment={**made.environment, **variables})


def as_arguments(made: Request) -> dict[str, Any]:
    """What a caller would pass: whatever differs from its default."""
    defaults = msgspec.structs.replace(request(), cpp_sources=[], no_implicit_headers=False)
    left_out = {"call", "name", "module_name", "interpreter", "environment"}
    names = [name for name in made.__struct_fields__ if name not in left_out]
    given = {
        name: getattr(made, name)
        for name in names
        if getattr(made, name) != getattr(defaults, name)
    }
    return {"name": made.module_name, **given}


@pytest.fixture(scope="module")
def stocks() -> dict[str, dict[str, str]]:

    calls = []
    for name, (changes, variables) in CALLS.items():
        made = as_request(changes, variables)
        calls.append([name, made.call, as_arguments(made), requested.build_environment(made)])
    done = subprocess.run(
        [sys.executable, "-c", STOCK],
        input=json.dumps(calls),
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    answers: dict[str, dict[str, str]] = json.loads(done.stdout.partition("ANSWERS")[2])
    return answers


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan | StockError]:
    async def ask() -> dict[str, Plan | StockError]:
        pool = ZygotePool()
        try:
            return {name: await pool.plan(as_request(*call)) for name, call in CALLS.items()}
        finally:
            await pool.close()

    return asyncio.run(ask())


@pytest.mark.parametrize("name", CALLS)
def test_the_plan_is_stocks(
    name: str, stocks: dict[str, dict[str, str]], plans: dict[str, Plan | StockError]
) -> None:
    plan = plans[name]
    assert isinstance(plan, Plan), plan
    assert plan.unsupported is None
    assert plan.ninja.replace(plan.scratch, "SCRATCH") == stocks[name]["build.ninja"]
    assert plan.sources.get("main.cpp") == stocks[name].get("main.cpp")
    assert not Path(plan.scratch).exists()
    for line in ("cflags", "ldflags", "cxx"):
        value = getattr(plan, line)
        assert f"\n{line} = {value}\n" in plan.ninja.replace(" \n", "\n"), line


def test_stocks_exceptions_come_back_by_type() -> None:
    async def ask() -> list[Plan | StockError]:
        pool = ZygotePool()
        try:
            wanted = [request(call="load", cpp_sources=[], no_implicit_headers=False,
                sources=sources)
                      for sources in ([], ["/nowhere/at_all.cpp"])]  # fmt: skip
            return [await pool.plan(one) for one in wanted]
        finally:
            await pool.close()

    nothing, missing = asyncio.run(ask())
    assert isinstance(nothing, StockError)
    assert nothing.type == "AssertionError"
    assert isinstance(missing, StockError)
    assert (missing.type, missing.errno, missing.filename) == (
        "FileNotFoundError",
        2,
        "/nowhere/at_all.cpp",
    )


def test_torchs_own_folder_is_left_alone() -> None:
    """Stock removes a PCH of everybody's from torch's folder at each call; the zygote must not."""
    spec = request().interpreter.torch_dir
    mark = Path(spec, "include", "torch", "extension.h.gch")
    if mark.exists() or not os.access(mark.parent, os.W_OK):
        pytest.skip("torch's folder cannot be written to, or has a PCH of its own")
    mark.write_text("")

    async def ask() -> None:
        pool = ZygotePool()
        await pool.plan(request())
        await pool.close()

    try:
        asyncio.run(ask())
        assert mark.exists()
    finally:
        mark.unlink(missing_ok=True)

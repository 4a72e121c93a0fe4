"""Mistakes that no header can mend are told without nvcc, in nvcc's words; of others nvcc itself
tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import warmcc
from tests.support.cuda import (
    WHOLE,
    CudaDaemon,
    build,
    levels,
    new_number,
    new_toy,
    refuses_a_cpu_tensor,
)
from warmcc.errors import CompileError

pytestmark = pytest.mark.ci

HOSTS = "void not_for_kernels(int);\n__global__ void"
EMPTY = "auto y = torch::empty_like(x);"
MISTAKES = {
    "a name": ("y[i] = x[i]", "y[i] = undefined_name"),
    "a name of torch's": (EMPTY, f"{EMPTY} auto z = torch::undefined_name(y);"),
    "a name of a namespace in torch": (EMPTY, f"{EMPTY} auto z = at::detail::undefined_name(y);"),
    "a member": (EMPTY, f"{EMPTY} auto z = y.sum().undefined_name();"),
    "members": (
        EMPTY,
        f"int unused; {EMPTY} y.undefined_1(); auto z = (&x) -> undefined_2(torch::undefined_3);",
    ),
    "behind other lines": (
        "__global__ void",
        "#define THREADS 4\n#include <cmath>\n#include <c10/util/Half.h>\n"
        "const double big = INFINITY * undefined_name;\n__global__ void",
    ),
    "syntax": ("auto y = torch::empty_like(x);", "auto y = torch::empty_like(x)"),
    "both": (
        "auto y = torch::empty_like(x);",
        "int unused; auto y = undefined_name(x)\n  auto z = (x;",
    ),
}


@pytest.fixture(scope="module")
def cold(nvcc: str) -> Iterator[CudaDaemon]:
    daemon = CudaDaemon(cuda_warm=False)
    try:
        daemon.start()
        yield daemon
        daemon.stop()
    finally:
        daemon.discard()


def told(daemon: CudaDaemon, source: str) -> list[str]:
    """What is said of a wrong unit, without the command."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in daemon.environment.items():
            patch.setenv(name, value)
        with pytest.raises(CompileError) as caught:
            build("mistaken", source)
    text = str(caught.value)
    return text[text.index("FAILED") :].split("\n")[1:]


def test_warnings_stand_in_front_of_a_mistake(warm_cuda: CudaDaemon, cold: CudaDaemon) -> None:
    """Nvcc says each again for each of its passes."""
    lines = "#warning first\n#include <c10/util/Half.h>\n#warning second\n__global__ void"
    source = new_toy().replace("__global__ void", lines).replace(*MISTAKES["a name"])
    ours, theirs = ([*dict.fromkeys(told(daemon, source))] for daemon in (warm_cuda, cold))
    assert ours == theirs
    assert len([line for line in ours if "[-Wcpp]" in line]) == 2


@pytest.mark.parametrize("mistake", MISTAKES)
def test_certain_mistakes_are_told_at_once(
    mistake: str, warm_cuda: CudaDaemon, cold: CudaDaemon
) -> None:
    source = new_toy().replace(*MISTAKES[mistake])
    before = levels(warm_cuda)
    ours = told(warm_cuda, source)
    assert levels(warm_cuda, before) == {}, "nothing but the lean prelude was asked"
    assert ours == told(cold, source)


HEADER = """#pragma once
#include <torch/types.h>
#ifdef USE_ROCM
#error not here
#endif
#define CHECK_GPU(x) TORCH_CHECK((x).is_cuda(), "x must be on the GPU")
"""
PACKAGE = """#include "own.cuh"
__global__ void twice(float* x) { x[threadIdx.x] *= 2; }
void run(torch::Tensor x) {
  CHECK_GPU(x);
  twice<<<1, 32>>>(x.data_ptr<float>());
}
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [("(float* x) {", "(float* x) { undefined_name();"), ("<<<1, 32>>>(", "<<<1, 32>>>((")],
    ids=["name", "syntax"],
)
def test_mistakes_in_a_package(
    old: str, new: str, tmp_path: Path, warm_cuda: CudaDaemon, cold: CudaDaemon
) -> None:
    """With headers of its own, which include torch's."""
    (tmp_path / "include").mkdir()
    (tmp_path / "include/own.cuh").write_text(HEADER)
    unit = tmp_path / "unit.cu"
    unit.write_text(f"// {new_number()}\n{PACKAGE.replace(old, new)}")
    before = levels(warm_cuda)
    texts = []
    for daemon in (warm_cuda, cold):
        with pytest.MonkeyPatch.context() as patch:
            for name, value in daemon.environment.items():
                patch.setenv(name, value)
            with pytest.raises(CompileError) as caught:
                warmcc.load(
                    "package", [str(unit)], extra_include_paths=[str(tmp_path / "include")],
                    is_python_module=False,
                )  # fmt: skip
        texts.append(str(caught.value).partition("FAILED")[2].split("\n")[1:])
    assert levels(warm_cuda, before) == {}, "nothing but the lean prelude was asked"
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            EMPTY,
            f"{EMPTY} Reducer r;",
        ),  # torch has one of that name
        (EMPTY, f"{EMPTY} torch::Reducer r;"),
        (EMPTY, f"{EMPTY} auto z = y.undefined_name(); int undefined_name;"),
        (EMPTY, f"{EMPTY} auto z = std::vector<int>().undefined_name();"),
        (EMPTY, f"{EMPTY} int z = y;"),
        ("y[i] = x[i]", "y[i] = TORCH_SELECTIVE_NAME(x[i]"),
        ("__global__ void", f"{HOSTS} wrong() {{ not_for_kernels(1); }}\n__global__ void"),
        (
            "__global__ void",
            f"{HOSTS} wrong() {{ int unused; not_for_kernels(1); }}\n"
            "inline void other() { int unused; }\n__global__ void",
        ),
        (  # headers say more of these names
            "__global__ void",
            "void current_device();\n__global__ void w() { current_device(); }\n__global__ void",
        ),
    ],
)
def test_what_headers_could_mend_is_nvccs(
    old: str, new: str, warm_cuda: CudaDaemon, cold: CudaDaemon
) -> None:
    source = new_toy().replace(old, new)
    assert told(warm_cuda, source) == told(cold, source)


def test_what_only_the_rest_of_the_extension_header_declares(warm_cuda: CudaDaemon) -> None:
    """Neither the lean prelude nor the host's has it."""
    asks = "bool is_one(PyObject* it) { return THPVariable_Check(it); }\n__global__ void"
    source = WHOLE + new_toy().replace("__global__ void", asks)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in warm_cuda.environment.items():
            patch.setenv(name, value)
        assert refuses_a_cpu_tensor(build("rest", source))

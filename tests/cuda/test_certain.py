"""Mistakes that no header can mend are told without nvcc, in nvcc's words; of others nvcc itself
tells.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.cuda import (
    WHOLE,
    CudaDaemon,
    build,
    levels,
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


@pytest.mark.parametrize("mistake", MISTAKES)
def test_certain_mistakes_are_told_at_once(
    mistake: str, warm_cuda: CudaDaemon, cold: CudaDaemon
) -> None:
    source = new_toy().replace(*MISTAKES[mistake])
    before = levels(warm_cuda)
    ours = told(warm_cuda, source)
    assert levels(warm_cuda, before) == {}, "nothing but the lean prelude was asked"
    assert ours == told(cold, source)


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

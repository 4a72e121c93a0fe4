"""Flags for which the host's half is not warm, on many processors: there a unit does not wait for
it, and the devices' half comes from the lean prelude.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import warmcc
from tests.support import device_code
from tests.support.cuda import (
    DECLARATION,
    WHOLE,
    CudaDaemon,
    build,
    compared,
    levels,
    new_number,
    new_toy,
    refuses_a_cpu_tensor,
    spans_of_last,
)
from warmcc.daemon.cuda import dryrun
from warmcc.errors import CompileError

# Each test brings words for the host's compiler that no other test has: nothing is warm for them.
OWN_HEADER = """#pragma once
#include <torch/extension.h>
#include <c10/cuda/CUDAGuard.h>
#ifdef HALF_DOUBLED
#define HALF_FACTOR 2 * HALF_N
#else
#define HALF_FACTOR HALF_N
#endif
template <typename T> __global__ void half_scale(const T* x, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * HALF_FACTOR;
}
"""
OWN_UNIT = """#include "half.cuh"
torch::Tensor run(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda(), "x must be on the GPU, this tensor is not");
    const at::cuda::OptionalCUDAGuard guard(x.device());
    auto y = torch::empty_like(x);
    half_scale<float><<<(x.numel() + 255) / 256, 256>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
"""
BINDING = (
    f"#include <torch/extension.h>\n{DECLARATION}"
    'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }\n'
)


@pytest.fixture(scope="module")
def many_steps(nvcc: str) -> Iterator[CudaDaemon]:
    """A daemon that has nothing warm, and the steps of fourteen processors."""
    daemon = CudaDaemon(sample_after=0.5, cuda_memory=8 << 30, jobs=16)
    daemon.start()
    yield daemon
    daemon.stop()
    daemon.discard()


@pytest.fixture
def client(many_steps: CudaDaemon, monkeypatch: pytest.MonkeyPatch) -> CudaDaemon:
    for name, value in many_steps.environment.items():
        monkeypatch.setenv(name, value)
    return many_steps


class Package:
    """Two files of a package: a unit that includes torch by way of its own header."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "include").mkdir()
        (folder / "include/half.cuh").write_text(OWN_HEADER)
        (folder / "unit.cu").write_text(f"// {new_number()}\n{OWN_UNIT}")
        (folder / "binding.cpp").write_text(BINDING)

    def load(self, flags: list[str]) -> Path:
        sources = [str(self.folder / name) for name in ("unit.cu", "binding.cpp")]
        module = warmcc.load(
            "half", sources, extra_cuda_cflags=flags,
            extra_include_paths=[str(self.folder / "include")],
        )  # fmt: skip
        assert refuses_a_cpu_tensor(module)
        return Path(module.__file__)


@pytest.fixture
def package(tmp_path: Path) -> Package:
    return Package(tmp_path)


@pytest.mark.timeout(1800)  # stock builds the same
def test_a_unit_with_its_own_headers_and_macros(
    client: CudaDaemon, package: Package, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    flags = ["-O1", "-DHALF_N=3", "-DHALF_DOUBLED"]
    before = levels(client)
    ours = package.load(flags)
    assert levels(client, before) == {"half": 1}
    monkeypatch.setenv("WARMCC_DISABLE", "1")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "stock"))
    package.load(flags)  # pybind11 gives the module of that name which is there
    (theirs,) = (tmp_path / "stock").rglob("half.so")
    assert not device_code.differing(device_code.extract(ours), device_code.extract(theirs))


def test_the_second_unit_waits_for_what_is_nearly_there(client: CudaDaemon) -> None:
    flags, before = ["-Xcompiler", "-fno-ivopts"], levels(client)
    assert refuses_a_cpu_tensor(build("first_one", WHOLE + new_toy(), extra_cuda_cflags=flags))
    assert levels(client, before) == {"half": 1}
    assert refuses_a_cpu_tensor(build("second_one", WHOLE + new_toy(), extra_cuda_cflags=flags))
    assert levels(client, before) in ({"half": 1, "lean": 1}, {"half": 2})
    client.wait_for_cuda()
    before = levels(client)
    assert refuses_a_cpu_tensor(build("third_one", WHOLE + new_toy(), extra_cuda_cflags=flags))
    assert levels(client, before) == {"lean": 1}


def test_a_macro_in_front_of_headers_that_mention_it(client: CudaDaemon) -> None:
    assert refuses_a_cpu_tensor(build("warms", WHOLE + new_toy()))
    client.wait_for_cuda()
    before = levels(client)
    source = "#define NDEBUG 1\n#include <torch/types.h>\n#include <cassert>\n" + new_toy()
    assert refuses_a_cpu_tensor(build("early", source))
    assert levels(client, before) == {"exact": 1}
    assert client.cuda()["not_faster"]["NDEBUG is defined in front of headers that mention it"] == 1


def test_a_mistake_is_told_as_nvcc_tells_it(client: CudaDaemon) -> None:
    source = new_toy().replace("y[i] = x[i]", "y[i] = x")
    with pytest.raises(CompileError, match="expression must have arithmetic"):
        build("wrong", source, extra_cuda_cflags=["-Xcompiler", "-funroll-loops"])


def test_a_certain_mistake_does_not_wait_for_the_hosts_half(client: CudaDaemon) -> None:
    """cudafe++ behind the lean prelude tells it, while nvcc's own reads torch's headers."""
    unknown, before = f"half_unknown_{new_number()}", levels(client)
    source = WHOLE + new_toy().replace("x[i] *", f"x[i] * {unknown} *")
    with pytest.raises(CompileError) as caught:
        build("half_certain", source, extra_cuda_cflags=["-Xcompiler", "-fno-gcse"])
    said = str(caught.value)
    assert f'error: identifier "{unknown}" is undefined\n' in said
    assert said.count("1 error detected in the compilation of") == 1
    assert any(span.step == "is the error certain" for span in spans_of_last(client))
    assert levels(client, before) == {}  # nvcc's own steps did not come to an end


def test_what_is_made_is_sampled(client: CudaDaemon) -> None:
    before, samples = levels(client), compared(client)
    flags = ["-Xcompiler", "-fno-plt"]
    assert refuses_a_cpu_tensor(build("sampled", new_toy(), extra_cuda_cflags=flags))
    assert levels(client, before) == {"half": 1}
    now = compared(client, after=samples)
    assert now == {"CUDA same": samples.get("CUDA same", 0) + 1}


def test_devices_have_names_of_their_own(nvcc: str, tmp_path: Path) -> None:
    """Where two had the same, their fork servers would be each other's."""
    (tmp_path / dryrun.UNIT).touch()

    def plan(*codes: str) -> dryrun.NvccPlan:
        flags = [f"-gencode=arch=compute_{code},code=sm_{code}" for code in codes]
        shown = subprocess.run(
            dryrun.command(f"{nvcc}/bin/nvcc", flags), cwd=tmp_path, capture_output=True, text=True
        ).stderr
        variables = dict(re.findall(r"^#\$ (\w+)=(.*)$", shown, re.M))
        return dryrun.parse(shown, variables)

    assert [one.architecture for one in plan("80", "90").devices] == ["80", "90"]
    assert [one.architecture for one in plan("90", "90a").devices] == ["90", "90a"]

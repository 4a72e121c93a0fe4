"""Kernels on a GPU: the corpus agrees with torch, and wrong arguments launch nothing."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import warmcc
from tests.support.daemons import Daemon
from tests.support.kernels import Case, cases
from warmcc.client.connection import session
from warmcc.client.kernel import loaded, native
from warmcc.client.kernel.driver import LaunchError

SCALE = """
__global__ void scale(const float* x, float* out, float by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] * by;
}
"""


@pytest.fixture(autouse=True, params=["python", "native"])
def served(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[None]:
    """Each test runs with both launchers, from the first launch on."""
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)
    session.forget()
    is_native = request.param == "native"
    monkeypatch.setattr(loaded, "MANY", 0 if is_native else sys.maxsize)
    assert not is_native or native.module() is not None
    yield
    session.forget()


def scale(**more: Any) -> warmcc.CudaKernel:
    return warmcc.kernel(SCALE, grid=lambda x, out, by, n: -(-n // 256), block=256, **more)


def _too_old(one: Case) -> bool:
    return "cluster" in one.launch and torch.cuda.get_device_capability() < (9, 0)


@pytest.mark.parametrize("one", cases(), ids=lambda one: one.name)
def test_agrees_with_torch(one: Case) -> None:
    if _too_old(one):
        pytest.skip("needs a GPU with clusters")
    torch.manual_seed(0)
    arguments, found, expected = one.make(torch)
    kernel = warmcc.kernel(one.source, one.expression, grid=one.grid, block=one.block, **one.made)
    kernel(*arguments, **one.launch)
    torch.cuda.synchronize()
    torch.testing.assert_close(found, expected, rtol=one.tolerance, atol=one.tolerance)


def test_agrees_with_load_inline() -> None:
    declared = "torch::Tensor scaled(torch::Tensor x, double by)"
    body = """ {
      auto out = torch::empty_like(x);
      scale<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), by, x.numel());
      return out;
    }"""  # noqa: E501
    extension = warmcc.load_inline(
        "scaled_by_stock", f"{declared};", f"{SCALE}{declared}{body}", functions=["scaled"]
    )
    x = torch.randn(10_000, device="cuda")
    out = torch.empty_like(x)
    scale()(x, out, 0.3, x.numel())
    assert torch.equal(out, extension.scaled(x, 0.3))


@pytest.mark.parametrize("compiler", ["nvrtc", "nvcc"])
def test_compilers(compiler: Any) -> None:
    if compiler == "nvcc":
        from tests.support.cuda import why_not

        if reason := why_not():
            pytest.skip(reason)
    source = "template <int N> __global__ void times(float* x) { x[threadIdx.x] *= N; }\n"
    x = torch.ones(32, device="cuda")
    warmcc.kernel(source, "times<3>", grid=1, block=32, compiler=compiler)(x)
    assert x.sum().item() == 96
    ptx = torch.cuda.get_device_capability()
    warmcc.kernel(source, "times<2>", grid=1, block=32, compiler=compiler,
                  arch="compute_{}{}".format(*ptx))(x)  # fmt: skip
    assert x.sum().item() == 192


def freed() -> torch.Tensor:
    one = torch.zeros(64, device="cuda")
    one.untyped_storage().resize_(0)
    return one


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        (lambda x: (x.double(), x, 2.0, 64), TypeError, "float32 is expected, and a float64"),
        (lambda x: (x.cpu(), x, 2.0, 64), ValueError, r"is not on the GPU; pass x.cuda\(\)"),
        (lambda x: (x.view(8, 8).t(), x, 2.0, 64), ValueError, "is not contiguous"),
        (lambda x: (x, x, 2.0), TypeError, "takes 4 arguments"),
        (lambda x: (x, x, 2.0, 64, 1), TypeError, "takes 4 arguments"),
        (lambda x: (freed(), x, 2.0, 64), ValueError, "its memory was freed"),
        (lambda x: (x, x, "2", 64), TypeError, "a number is expected"),
        (lambda x: (x, x, 2.0, 64.0), TypeError, "a whole number is expected"),
        (lambda x: (x, x, 2.0, 1 << 31), OverflowError, "`int n`: 2147483648 does not fit"),
        (lambda x: (x, x, x.sum(), 64), TypeError, r"pass by.item\(\)"),
        (lambda x: ([1.0], x, 2.0, 64), TypeError, "a tensor is expected"),
        (lambda x: (x.to_sparse(), x, 2.0, 64), (TypeError, RuntimeError), "."),
    ],
)  # fmt: skip
def test_wrong_arguments_launch_nothing(
    wrong: Callable[[torch.Tensor], tuple[Any, ...]], error: Any, said: str
) -> None:
    x = torch.ones(64, device="cuda")
    kernel = warmcc.kernel(SCALE, grid=1, block=64)
    with pytest.raises(error, match=said):
        kernel(*wrong(x))
    torch.cuda.synchronize()
    assert x.sum().item() == 64


def test_another_device_is_refused() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    x = torch.ones(64, device="cuda:1")
    with pytest.raises(ValueError, match=r"the current device is cuda:0; .*cuda.device\(1\)"):
        scale()(x, x, 2.0, 64)
    with torch.cuda.device(1):
        scale()(x, x, 2.0, 64)
    assert x.sum().item() == 128


def test_other_objects_with_memory_of_the_gpu() -> None:
    class Dlpack:
        def __init__(self, tensor: torch.Tensor) -> None:
            self.tensor = tensor

        def __dlpack__(self, **more: Any) -> Any:
            return self.tensor.__dlpack__(**more)

        def __dlpack_device__(self) -> Any:
            return self.tensor.__dlpack_device__()

    class Interface:
        def __init__(self, tensor: torch.Tensor) -> None:
            self.__cuda_array_interface__ = tensor.__cuda_array_interface__

    x, out = torch.ones(64, device="cuda"), torch.zeros(64, device="cuda")
    kernel = scale()
    kernel(Dlpack(x), Interface(out), 3.0, 64)
    assert out.sum().item() == 192
    kernel(x.data_ptr(), out.data_ptr(), 4.0, 64)
    assert out.sum().item() == 256
    kernel(torch.nn.Parameter(x), out, 5.0, 64)
    assert out.sum().item() == 320


def test_launches_that_the_driver_refuses_say_why() -> None:
    x = torch.ones(64, device="cuda")
    for launch, said in (
        ({"block": 2048}, "a block has 2048 threads, and this kernel may have 1024"),
        ({"block": 0}, "a block has no threads"),
        ({"shared": 1 << 20}, "1048576 bytes of dynamic shared memory"),
        ({"grid": (1, 70_000)}, "a grid has at most"),
        ({"grid": 1 << 20, "block": 1024, "cooperative": True}, "must fit on the GPU at once"),
    ):
        with pytest.raises(LaunchError, match=said):
            warmcc.kernel(SCALE)(x, x, 2.0, 64, **{"grid": 1, "block": 64, **launch})
    torch.cuda.synchronize()
    scale()(x, x, 2.0, 64)  # nothing is broken
    assert x.sum().item() == 128


def test_an_empty_grid_launches_nothing() -> None:
    x = torch.empty(0, device="cuda")
    scale()(x, x, 2.0, 0)


def test_streams_and_graphs() -> None:
    x, out = torch.ones(64, device="cuda"), torch.zeros(64, device="cuda")
    kernel, stream = scale(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        kernel(x, out, 2.0, 64)
    stream.synchronize()
    assert out.sum().item() == 128
    kernel(x, out, 3.0, 64, stream=stream)
    stream.synchronize()
    assert out.sum().item() == 192
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(x, out, 4.0, 64)
    x.fill_(2.0)
    graph.replay()
    torch.cuda.synchronize()
    assert out.sum().item() == 512


def test_threads_launch_side_by_side() -> None:
    kernel, x = scale(), torch.ones(256, device="cuda")
    outs = [torch.zeros(256, device="cuda") for _ in range(8)]
    kernel(x, outs[0], 1.0, 256)

    def many(number: int) -> None:
        for _ in range(200):
            kernel(x, outs[number], float(number), 256)

    threads = [threading.Thread(target=many, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    torch.cuda.synchronize()
    assert [int(out.sum().item()) for out in outs] == [256 * number for number in range(8)]


def test_a_new_thread_has_the_context_of_its_device() -> None:
    """It has launched nothing before, and CUDA's runtime has made no context its current one."""
    kernel, x = scale(), torch.ones(64, device="cuda")
    kernel(x, x, 2.0, 64)
    failed: list[BaseException] = []

    def launch() -> None:
        try:
            ctypes.CDLL("libcuda.so.1").cuCtxSetCurrent(None)
            kernel(x, x, 2.0, 64)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=launch)
    thread.start()
    thread.join()
    assert failed == []
    assert x.sum().item() == 256


def test_attributes_and_occupancy() -> None:
    kernel = scale()
    found = kernel.attributes
    assert found["max_threads"] == 1024 and 0 < found["registers"] <= 255
    assert kernel.blocks_per_processor(256) >= 1


def test_a_structure_of_the_wrong_size_is_refused() -> None:
    source = "struct P { int a, b; };\n__global__ void f(P p, int* out) { *out = p.a + p.b; }\n"
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    kernel = warmcc.kernel(source, grid=1, block=1)
    kernel(b"\x01\0\0\0\x02\0\0\0", out)
    assert out.item() == 3
    with pytest.raises(ValueError, match="8 bytes are expected, and 4 were given"):
        kernel(b"1234", out)


def test_a_misread_signature_is_no_launch() -> None:
    source = "#define ALSO , int m\n__global__ void f(int* out, int n ALSO) { *out = n; }\n"
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    with pytest.raises(ValueError, match="not so compiled: it has 3 parameters there"):
        warmcc.kernel(source, grid=1, block=1)(out, 1)
    right = warmcc.kernel(source, "f", signature="void f(int* out, int n, int m)", grid=1, block=1)
    right(out, 5, 6)
    assert out.item() == 5


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, at the import of inductor
def test_operators_work_under_torch_compile() -> None:
    operator = scale().as_torch_op("warmcc_gpu_test::scale")
    x = torch.randn(1000, device="cuda")

    def call(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        operator(x, out, 2.0, x.numel())
        return out + 1

    expected = x * 2 + 1
    torch.testing.assert_close(call(x), expected)
    from torch._inductor import config

    with config.patch(compile_threads=1):  # its pool of processes would stay
        torch.testing.assert_close(torch.compile(call, fullgraph=True)(x), expected)
    arguments = (x, torch.empty_like(x), 2.0, 1000)
    torch.library.opcheck(operator, arguments)


def test_a_new_process_gets_a_hit() -> None:
    kernel = scale(constants={"UNUSED": 1})
    x = torch.ones(64, device="cuda")
    kernel(x, x, 2.0, 64)
    again = scale(constants={"UNUSED": 1})
    again(x, x, 2.0, 64)
    assert [one.outcome for one in again._compiled.values()] == ["hit"]


def test_types_are_those_of_the_tensors() -> None:
    source = "template <typename T> __global__ void twice(T* x) { x[threadIdx.x] *= T(2); }\n"
    kernel = warmcc.kernel(source, grid=1, block=32)
    for dtype in (torch.float32, torch.int64, torch.float64, torch.float32):
        x = torch.ones(32, device="cuda", dtype=dtype)
        kernel(x)
        assert x.sum().item() == 64
    with pytest.raises(TypeError, match=r"T is told by argument 1, .* specialize\(T="):
        kernel(5)

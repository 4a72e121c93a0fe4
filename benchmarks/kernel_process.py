"""A user's process that gets one kernel, for the scenario ``kernel_nvrtc``: ``SIDE NUMBER ARCH``.

Prints one line of JSON: the seconds from the call of ``warmcc.kernel`` (or of stock's
``load_inline``) until the kernel has run, or, without a GPU, until it is compiled; how it was
found; and with SIDE ``launch`` the seconds of one launch by each way that is installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

KERNEL = """
extern "C" __global__ void scale(const float* x, float* y, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = {number} * x[i];
}}
"""
DECLARED = "void scale_(torch::Tensor x, torch::Tensor y, int64_t n)"
BINDING = """
{declared} {{
  scale<<<(n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), y.data_ptr<float>(), n);
}}
"""
LAUNCHES = 2000
SETTLED = 2.0
N = 1024


def stock(number: int, module: str) -> Any:
    """The binding that ``load_inline`` makes for the kernel."""
    load_inline = importlib.import_module(module).load_inline
    includes = "#include <ATen/cuda/CUDAContext.h>\n"
    made = load_inline(
        f"scaled_{number}", f"{DECLARED};",
        includes + KERNEL.format(number=number) + BINDING.format(declared=DECLARED),
        functions=["scale_"],
    )  # fmt: skip
    return made.scale_


def first(torch: Any, side: str, number: int, arch: str) -> dict[str, Any]:
    """One call, from the source to what it wrote."""
    has_gpu = torch.cuda.is_available()
    if has_gpu:
        x, y = torch.ones(N, device="cuda"), torch.zeros(N, device="cuda")
        torch.cuda.synchronize()
    how = ""
    started = time.perf_counter()
    if side == "stock":
        call = stock(number, "torch.utils.cpp_extension")
    else:
        import warmcc

        call = warmcc.kernel(KERNEL.format(number=number), grid=-(-N // 256), block=256)
        if not has_gpu:
            how = call.compile(arch).outcome
    if has_gpu:
        call(x, y, N)
        torch.cuda.synchronize()
    taken = time.perf_counter() - started
    if has_gpu and side != "stock":
        (compiled,) = call._compiled.values()
        how = compiled.outcome
    return {"seconds": taken, "how": how, "right": not has_gpu or y.sum().item() == number * N}


def timed(torch: Any, call: Callable[[], Any]) -> float:
    """Seconds of one of many launches, by the processor's clock: the GPU keeps up."""
    for _ in range(100):
        call()
    torch.cuda.synchronize()
    time.sleep(SETTLED)  # warmcc's native launcher comes in another thread
    best = float("inf")
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(LAUNCHES):
            call()
        best = min(best, time.perf_counter() - started)
        torch.cuda.synchronize()
    return best / LAUNCHES


def launches(torch: Any, number: int) -> dict[str, float]:
    """Seconds of a launch by each way."""
    import warmcc

    x, y = torch.ones(N, device="cuda"), torch.zeros(N, device="cuda")
    grid, text = -(-N // 256), KERNEL.format(number=number)
    kernel = warmcc.kernel(text, grid=grid, block=256)
    binding = stock(number, "warmcc")
    found = {
        "warmcc": timed(torch, lambda: kernel(x, y, N)),
        "load_inline's binding": timed(torch, lambda: binding(x, y, N)),
    }
    if kernel._native is None:
        raise SystemExit("the launches of warmcc's kernel stayed Python's")
    if hasattr(torch.cuda, "_compile_kernel"):
        own = torch.cuda._compile_kernel(text, "scale")
        found["torch.cuda._compile_kernel"] = timed(
            torch, lambda: own(grid=(grid, 1, 1), block=(256, 1, 1), args=[x, y, N])
        )
    if importlib.util.find_spec("cupy") is not None:
        cupy = importlib.import_module("cupy")
        raw, cx, cy = cupy.RawKernel(text, "scale"), cupy.asarray(x), cupy.asarray(y)
        found["CuPy"] = timed(torch, lambda: raw((grid,), (256,), (cx, cy, cupy.int32(N))))
    if importlib.util.find_spec("cuda") and importlib.util.find_spec("cuda.core"):
        found["cuda.core"] = timed(torch, _cuda_core(torch, text, grid, x, y))
    return found


def _cuda_core(torch: Any, text: str, grid: int, x: Any, y: Any) -> Callable[[], Any]:
    """A launch by cuda.core, with tensors, as warmcc's."""
    try:
        core = importlib.import_module("cuda.core")
        core.Device  # noqa: B018
    except (ImportError, AttributeError):
        core = importlib.import_module("cuda.core.experimental")
    numpy = importlib.import_module("numpy")
    device = core.Device()
    device.set_current()
    options = core.ProgramOptions(arch=f"sm_{device.arch}")
    module = core.Program(text, "c++", options=options).compile(
        "cubin", name_expressions=("scale",)
    )
    kernel, config = module.get_kernel("scale"), core.LaunchConfig(grid=grid, block=256)

    class Stream:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, torch.cuda.current_stream().cuda_stream

    stream = device.create_stream(Stream())
    n = numpy.int32(N)
    return lambda: core.launch(stream, config, kernel, x.data_ptr(), y.data_ptr(), n)


def main(side: str, number: str, arch: str) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever compilers print stays out of the answers
    import torch

    found = (
        launches(torch, int(number)) if side == "launch" else first(torch, side, int(number), arch)
    )
    print(json.dumps(found), file=answers)


if __name__ == "__main__":
    main(*sys.argv[1:])

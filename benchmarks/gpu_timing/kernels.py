"""The program of both sides: time kernels by CUDA events, and print what was measured as JSON.

It is given the path of an extension, or ``-``. It stands alone, and is copied to an empty folder.
"""

import sys

FOUND_TORCH = "torch" in sys.modules

import time  # noqa: E402

BEGAN = time.perf_counter()

import torch  # noqa: E402

FRESH = not torch.cuda.is_initialized()

import importlib.util  # noqa: E402
import json  # noqa: E402
import statistics  # noqa: E402
from collections.abc import Callable  # noqa: E402
from typing import Any  # noqa: E402

WARM_UP, LAUNCHES = 8, 25
SPIN_SECONDS = 0.25  # for the clocks of the GPU to rise

try:
    import triton
    import triton.language as tl

    @triton.jit
    def triton_scale(x, y, n, block: tl.constexpr):  # type: ignore[no-untyped-def]
        """``y = 3 x``"""
        at = tl.program_id(0) * block + tl.arange(0, block)
        tl.store(y + at, tl.load(x + at, mask=at < n) * 3.0, mask=at < n)
except ImportError:
    triton = None


def kernels(extension: str) -> dict[str, Callable[[], Any]]:
    """By name; each launches its kernels on the current stream."""
    torch.manual_seed(0)
    large, other = (torch.rand(1 << 26, device="cuda") for _ in range(2))
    result = torch.empty_like(large)
    half, factor = (torch.randn(4096, 4096, device="cuda", dtype=torch.float16) for _ in range(2))
    rows = torch.randn(8192, 4096, device="cuda", dtype=torch.bfloat16)
    tiny = torch.zeros(32, device="cuda")
    image = torch.randn(32, 64, 56, 56, device="cuda", dtype=torch.float16)
    weight = torch.randn(64, 64, 3, 3, device="cuda", dtype=torch.float16)
    queries = torch.randn(8, 16, 1024, 64, device="cuda", dtype=torch.float16)
    pageable = torch.empty(1 << 24, dtype=torch.uint8)

    def launches() -> None:
        for _ in range(50):
            tiny.add_(1.0)

    found: dict[str, Callable[[], Any]] = {
        "add": lambda: torch.add(large, other, out=result),
        "matmul": lambda: half @ factor,
        "softmax": lambda: torch.softmax(rows, -1),
        "layer_norm": lambda: torch.nn.functional.layer_norm(rows, (4096,)),
        "sum": large.sum,
        "sort": lambda: torch.sort(large[: 1 << 22]),
        "conv2d": lambda: torch.nn.functional.conv2d(image, weight, padding=1),
        "attention": lambda: torch.nn.functional.scaled_dot_product_attention(
            queries, queries, queries
        ),
        "50 small launches": launches,
        "copy to the device": lambda: pageable.to("cuda"),
    }
    if extension != "-":
        scale = load(extension).scale
        found["load_inline"] = lambda: scale(large, result)
    if triton is not None:
        count = large.numel()
        grid = (triton.cdiv(count, 1024),)
        found["triton"] = lambda: triton_scale[grid](large, result, count, block=1024)
    return found


def load(path: str) -> Any:
    spec = importlib.util.spec_from_file_location("gpu_timing_scale", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def spin() -> None:
    """Keep the GPU busy, so that no kernel is measured at idle clocks."""
    square = torch.rand(2048, 2048, device="cuda")
    end = time.perf_counter() + SPIN_SECONDS
    while time.perf_counter() < end:
        for _ in range(20):
            square @ square
        torch.cuda.synchronize()


def timed(launch: Callable[[], Any]) -> float:
    """Seconds of one launch by CUDA events: the median of some."""
    for _ in range(WARM_UP):
        launch()
    torch.cuda.synchronize()
    pairs = []
    for _ in range(LAUNCHES):
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        launch()
        ended.record()
        pairs.append((began, ended))
    torch.cuda.synchronize()
    return statistics.median(one.elapsed_time(other) / 1000 for one, other in pairs)


def main() -> None:
    with torch.inference_mode():
        chosen = kernels(sys.argv[1])
        spin()
        times = {name: timed(launch) for name, launch in chosen.items()}
    print(
        json.dumps(
            {
                "found_torch": FOUND_TORCH, "fresh": FRESH, "times": times,
                "seconds": time.perf_counter() - BEGAN,
            }
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()

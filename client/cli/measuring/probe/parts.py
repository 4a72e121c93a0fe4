"""Time single parts of a first compile, and print them as JSON: seconds, or why there are none.

A script by itself, as compile_steps.py.
"""

import contextlib
import importlib
import json
import os
import time
from typing import Any

_CUTLASS = {"cuda": "cutlass_utils", "cutlass": "utils"}


def pool(_torch: Any) -> None:
    """The processes that compile Triton kernels."""
    from torch._inductor.async_compile import AsyncCompile, get_compile_threads

    if get_compile_threads() <= 1:
        raise RuntimeError("compile_threads is 1")
    AsyncCompile.warm_pool()
    AsyncCompile.wait_pool_ready()


def autotune_cache(_torch: Any) -> None:
    """The choices of earlier runs, which are one file."""
    from torch._inductor.codecache import CacheBase

    path = CacheBase.get_local_cache_path()
    if not os.path.exists(path):
        raise RuntimeError("there is none yet")
    CacheBase().get_local_cache()


def triton_driver(torch: Any) -> None:
    if not torch.cuda.is_available():
        raise RuntimeError("there is no GPU")
    module: Any = importlib.import_module("triton.runtime.driver")
    module.driver.active.get_current_target()


def device_properties(torch: Any) -> None:
    if not torch.cuda.is_available():
        raise RuntimeError("there is no GPU")
    from torch._inductor.runtime.hints import DeviceProperties

    DeviceProperties.create(torch.device("cuda", 0))


def cutlass(torch: Any) -> None:
    """The operations of CUTLASS, a list of which Inductor makes for max-autotune."""
    if not torch.cuda.is_available():
        raise RuntimeError("there is no GPU")
    for name in ("cuda", "cutlass"):  # where it is depends on the version
        with contextlib.suppress(ImportError):
            module: Any = importlib.import_module(
                f"torch._inductor.codegen.{name}.{_CUTLASS[name]}"
            )
            if not module.try_import_cutlass():
                raise RuntimeError("CUTLASS is not installed")
            module.gen_ops()
            return
    raise RuntimeError("this torch has its operations elsewhere")


PARTS = {
    "pool start (warm_pool)": pool,
    "autotune cache": autotune_cache,
    "Triton's driver": triton_driver,
    "device properties": device_properties,
    "CUTLASS operations": cutlass,
}


def main() -> None:
    import torch

    importlib.import_module("torch._inductor.compile_fx")

    told: dict[str, Any] = {}
    for name, part in PARTS.items():
        started = time.perf_counter()
        try:
            part(torch)
            told[name] = time.perf_counter() - started
        except Exception as error:
            told[name] = f"{error}".split("\n")[0] or type(error).__name__
    print(json.dumps(told))


if __name__ == "__main__":
    main()

"""Imported by a zygote of ``warmcc run --inductor``: enables what its programs use, and does before
the fork what each first compile does once.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

from warmcc.client.inductor.switch import enable

# What a first compile for a CPU imports, beside what ``run_compile`` names
_MODULES = (
    "torch._dynamo.backends.cudagraphs", "torch._dynamo.backends.inductor",
    "torch._dynamo.dce_extra_outputs", "torch._dynamo.repro.after_aot",
    "torch._dynamo.repro.after_dynamo", "torch._export.passes.collect_tracepoints_pass",
    "torch._inductor.async_compile", "torch._inductor.bounds", "torch._inductor.codecache",
    "torch._inductor.codegen.cpp", "torch._inductor.codegen.cpp_gemm_template",
    "torch._inductor.codegen.cpp_wrapper_cpu", "torch._inductor.codegen.cpp_wrapper_cpu_array_ref",
    "torch._inductor.codegen.cpp_wrapper_gpu", "torch._inductor.codegen.cpp_wrapper_mps",
    "torch._inductor.codegen.cpu_device_op_overrides",
    "torch._inductor.codegen.cuda.device_op_overrides",
    "torch._inductor.codegen.cuda_combined_scheduling", "torch._inductor.codegen.halide",
    "torch._inductor.codegen.memory_planning", "torch._inductor.codegen.mps",
    "torch._inductor.codegen.pallas", "torch._inductor.codegen.python_wrapper_mtia",
    "torch._inductor.codegen.segmented_tree", "torch._inductor.codegen.wrapper_fxir",
    "torch._inductor.codegen.xpu.xpu_combined_scheduling", "torch._inductor.cpp_builder",
    "torch._inductor.cpu_vec_isa", "torch._inductor.extern_node_serializer",
    "torch._inductor.fx_passes.apply_gumbel_max_trick",
    "torch._inductor.fx_passes.efficient_conv_bn_eval", "torch._inductor.fx_passes.joint_graph",
    "torch._inductor.fx_passes.post_grad", "torch._inductor.fx_passes.pre_grad",
    "torch._inductor.graph", "torch._inductor.hooks", "torch._inductor.mkldnn_lowerings",
    "torch._inductor.scheduler", "torch._subclasses.schema_check_mode",
    "torch.distributed.tensor.experimental._attention", "torch.export._trace",
    "torch.fx.experimental.validator", "sympy.combinatorics", "sympy.tensor.tensor",
)  # fmt: skip
_GPUS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dri")


def _prepare() -> None:
    """Import what torch has of these modules, and register its patterns: for a CPU, where there is
    no GPU whose patterns programs may want instead."""
    for name in _MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if any(map(os.path.exists, _GPUS)):
        return
    torch: Any = importlib.import_module("torch")
    passes: Any = torch._inductor.fx_passes
    with _bars_alone(), contextlib.suppress(AttributeError, TypeError):  # of another torch
        passes.joint_graph.lazy_init(torch.device("cpu"))
        passes.post_grad.lazy_init()


@contextlib.contextmanager
def _bars_alone() -> Iterator[None]:
    """Progress bars of tqdm, where torch has it, leave neither a lock that all forks would share
    nor a thread."""
    bars: Any = getattr(sys.modules.get("tqdm.std"), "tqdm", None)
    if bars is None or "_lock" in vars(bars):
        yield
        return
    interval, bars.monitor_interval = bars.monitor_interval, 0
    bars.set_lock(threading.RLock())
    try:
        yield
    finally:
        bars.monitor_interval = interval
        del bars._lock


enable(artifacts=False)  # those of bundles are for each program to load
_prepare()

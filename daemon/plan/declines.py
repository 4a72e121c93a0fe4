"""Which requests the daemon leaves to stock torch."""

from __future__ import annotations

import os

from warmcc.daemon.plan import one_object, requested, validation
from warmcc.daemon.toolchain import nvcc_flags
from warmcc.daemon.toolchain.flags import unkeyable
from warmcc.request import Request


def why_declined(request: Request) -> tuple[str, bool] | None:
    """Why this request is left to stock: (reason, is that by design?), or None."""
    if (reason := validation.why_not(request)) is not None:
        return reason, True
    if request.call == "compile" and not one_object.is_one(request):
        return "compile takes one source, by its absolute path, or one named text", True
    suffixes = {source.rsplit(".", 1)[-1] for source in request.sources}
    if "hip" in suffixes:
        return "HIP sources", True
    if requested.with_cuda(request):
        variables = (
            request.environment.get(f"NVCC_{name}_FLAGS", "") for name in ("PREPEND", "APPEND")
        )
        flags = request.extra_cuda_cflags
        if request.call == "compile" and flags[:2] == ["-ccbin", request.environment.get("CC")]:
            flags = flags[2:]  # the toolchain's own compiler for the host
        if (reason := nvcc_flags.unkeyable([*flags, *variables])) is not None:
            return f"unsupported nvcc flags: {reason}", True
        if os.sep in request.environment.get("CC", "") and os.path.isdir(request.environment["CC"]):
            return "CC names a folder", True
        if request.environment.get("NVCC_CCBIN"):  # a compiler that nobody has identified
            return "NVCC_CCBIN names the host compiler", True
    if (
        request.with_sycl or request.sycl_sources or "sycl" in suffixes
    ):  # stock runs a SYCL compiler to plan them
        return "SYCL sources", True
    for flags in (request.extra_cflags, request.extra_ldflags):
        if reason := unkeyable(" ".join(flags)):
            return f"unsupported flags: {reason}", True
    return None

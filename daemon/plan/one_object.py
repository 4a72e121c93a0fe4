"""The plan of ``compile``: one source to one object, by the flags that the caller gives.

Stock has no such call: its ``BuildExtension`` compiles the objects of a setup.py so, and links them
by other means; torch.compile generates the text of a source, and links its object alone.
"""

from __future__ import annotations

from warmcc.daemon.plan import requested
from warmcc.daemon.plan.stock import Plan, PlannedUnit
from warmcc.daemon.toolchain import Toolchain
from warmcc.request import Request


def is_one(request: Request) -> bool:
    """Whether a request has one source: a file by its absolute path, or a text by the name of a
    file, which is compiled to an object, or linked to a library where there are flags for that."""
    if request.sources:
        path = request.sources[0]
        return len(request.sources) == 1 and path[:1] == "/" and not request.cpp_sources
    ending = ".so" if request.extra_ldflags else ".o"
    return (
        len(request.cpp_sources) == 1
        and request.name.endswith(".cpp")
        and request.module_name.endswith(ending)
        and not request.cuda_sources
    )


def plan(request: Request, toolchain: Toolchain) -> Plan:
    """What is compiled for a request that ``declines`` has nothing to say of."""
    source = request.sources[0] if request.sources else request.name
    links = bool(request.extra_ldflags)
    made = f"{request.module_name}.o" if links else request.module_name
    unit = PlannedUnit(source, made, requested.with_cuda(request))
    return Plan(
        "", dict(zip([request.name], request.cpp_sources, strict=False)), [], "",
        cxx=request.environment.get("CXX", "c++"), cflags=" ".join(request.extra_cflags),
        nvcc="" if toolchain.cuda is None else toolchain.cuda.nvcc,
        cuda_cflags=" ".join(request.extra_cuda_cflags), ldflags=" ".join(request.extra_ldflags),
        target=request.module_name, units=[unit],
    )  # fmt: skip

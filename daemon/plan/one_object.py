"""The plan of ``compile``: one source to one object, by the flags that the caller gives.

Stock has no such call: its ``BuildExtension`` compiles the objects of a setup.py so, and links them
by other means.
"""

from __future__ import annotations

from warmcc.daemon.plan import requested
from warmcc.daemon.plan.stock import Plan, PlannedUnit
from warmcc.daemon.toolchain import Toolchain
from warmcc.request import Request


def plan(request: Request, toolchain: Toolchain) -> Plan:
    """What is compiled for a request that ``declines`` has nothing to say of."""
    unit = PlannedUnit(request.sources[0], request.module_name, requested.with_cuda(request))
    return Plan(
        "", {}, [], "",
        cxx=request.environment.get("CXX", "c++"), cflags=" ".join(request.extra_cflags),
        nvcc="" if toolchain.cuda is None else toolchain.cuda.nvcc,
        cuda_cflags=" ".join(request.extra_cuda_cflags), target=unit.object, units=[unit],
    )  # fmt: skip

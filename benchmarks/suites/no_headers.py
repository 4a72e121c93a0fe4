"""A C++ source that chooses its headers (``no_implicit_headers``, ``<torch/types.h>``) and
registers an operator with ``TORCH_LIBRARY``; nobody has built it before. In a new process that has
torch imported: from the call to the operator.
"""

from __future__ import annotations

from benchmarks.harness import Call, Caller, Side, World, interleaved, new_number, seconds
from benchmarks.harness.results import Outcome, Target, pair

TITLE = "cold: only <torch/types.h>"
REPEAT = 3
LIMIT_SECONDS = 0.8
SOURCE = """\
#include <torch/types.h>
#include <torch/library.h>
at::Tensor f(const at::Tensor& x) {{ return x * {number}; }}
TORCH_LIBRARY(chosen_{number}, m) {{ m.def("f(Tensor x) -> Tensor", &f); }}
"""


def new_call() -> Call:
    number = new_number()
    arguments = {
        "cpp_sources": SOURCE.format(number=number), "no_implicit_headers": True,
        "is_python_module": False,
    }  # fmt: skip
    check = f"torch.ops.chosen_{number}.f(torch.ones(1)).item() == {number}"
    return Call("load_inline", f"chosen_{number}", arguments, check)


def measure(repeat: int) -> Outcome:
    with World() as world:

        def sample(side: Side) -> float:
            with Caller(world, side) as caller:
                return caller.make(side, new_call())

        for _ in range(
            2
        ):  # what is included is seen twice before a precompiled header is made of it
            sample("warmcc")
        world.wait_for_pch()
        before, objects = world.counters(), world.stock_objects()
        taken = interleaved(
            repeat, {"stock": lambda: sample("stock"), "warmcc": lambda: sample("warmcc")}
        )
        facts = world.expect(before, compiles=repeat, pch_used=repeat, hits=0)
        world.stock_compiles(objects, repeat)
    found = pair("", taken["stock"], taken["warmcc"])
    ours = found.warmcc.median
    return Outcome(
        found,
        targets=[
            Target(f"{seconds(ours)}, at most {seconds(LIMIT_SECONDS)}", ours <= LIMIT_SECONDS)
        ],
        facts=facts,
    )

"""A C++ toy that nobody has built before, which binds itself with ``PYBIND11_MODULE`` (default
headers), in a new process that has torch imported: from the call to the module.

pybind11 is then part of the user's own unit, and what it instantiates for these signatures cannot
be had beforehand.
"""

from __future__ import annotations

from benchmarks.harness import Call, Caller, Side, World, interleaved, new_number, seconds
from benchmarks.harness.results import Outcome, Target, pair

TITLE = "cold: with a PYBIND11_MODULE of its own"
REPEAT = 3
LIMIT_SECONDS = 3.0
LIMIT_RATIO = 8.0
SOURCE = """\
at::Tensor f(at::Tensor x, double scale) {{ return x * {number} * scale; }}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{
  m.def("f", &f, "scales", py::arg("x"), py::arg("scale") = 1.0);
}}
"""


def new_call() -> Call:
    number = new_number()
    check = f"module.f(torch.ones(1), scale=2).item() == {2 * number}"
    return Call(
        "load_inline", f"own_{number}", {"cpp_sources": SOURCE.format(number=number)}, check
    )


def measure(repeat: int) -> Outcome:
    with World() as world:

        def sample(side: Side) -> float:
            with Caller(world, side) as caller:
                return caller.make(side, new_call())

        world.wait_for_pch()
        before, objects = world.counters(), world.stock_objects()
        taken = interleaved(
            repeat, {"stock": lambda: sample("stock"), "warmcc": lambda: sample("warmcc")}
        )
        facts = world.expect(before, compiles=repeat, pch_used=repeat, hits=0)
        world.stock_compiles(objects, repeat)
    found = pair("", taken["stock"], taken["warmcc"])
    ours = found.warmcc.median
    targets = [
        Target(f"{seconds(ours)}, at most {seconds(LIMIT_SECONDS)}", ours <= LIMIT_SECONDS),
        Target(
            f"stock takes {found.ratio:.1f} times as long, at least {LIMIT_RATIO:g}",
            found.ratio >= LIMIT_RATIO,
        ),
    ]
    return Outcome(found, targets=targets, facts=facts)

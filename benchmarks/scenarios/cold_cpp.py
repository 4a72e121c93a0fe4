"""A C++ toy whose source was never seen before, default headers and ``functions=``: from the call to the module."""

from __future__ import annotations

import random

from benchmarks.harness import FRESH, Outcome, Series, World, interleaved

TITLE = "cold C++ toy (source never seen)"
REPEAT = 3
CODE = """
source, name = sys.argv[1], sys.argv[2]
start = time.perf_counter()
module = cpp.load_inline(name, source, functions=["f"])
report(time.perf_counter() - start)
assert module.f(torch.ones(1)).item() == 2 + int(sys.argv[3])
"""


def measure(repeat: int) -> Outcome:
    """Stock without a compiler wrapper; warmcc's daemon with its PCH, and once without (the very first request)."""
    with World() as world:
        world.start(wait=False)

        def run(side: str) -> float:
            number = random.randrange(10**6)
            return world.run(side, CODE, FRESH.format(n=number), f"cold_{side}_{number}", str(number))

        first = Series("warmcc, first request of all (no PCH yet)", "warmcc", [run("warmcc")])
        world.start()
        series = interleaved(
            repeat,
            (Series("warmcc", "warmcc"), lambda _: run("warmcc")),
            (Series("stock", "stock"), lambda _: run("stock")),
        )
        return Outcome("cold_cpp", TITLE, [*series, first], ("warmcc", "stock"))

"""Sixteen processes ask for one new extension at once: until the last of them has its module."""

from __future__ import annotations

import random

from benchmarks.harness import FRESH, Outcome, Series, World, interleaved

TITLE = "sixteen clients at once, one request"
REPEAT = 2
CLIENTS = 16
CODE = """
print("ready", flush=True)
input()
start = time.perf_counter()
module = cpp.load_inline(sys.argv[2], sys.argv[1], functions=["f"])
assert module.f(torch.ones(1)).item() == 2 + int(sys.argv[3])
report(time.perf_counter() - start)
"""


def measure(repeat: int) -> Outcome:
    """Default headers; warmcc with its PCH ready; stock shares one build directory through its lock file."""
    with World() as world:
        world.start()

        def run(side: str) -> float:
            number = random.randrange(10**6)
            children = [
                world.child(side, CODE, FRESH.format(n=number), f"sixteen_{number}", str(number))
                for _ in range(CLIENTS)
            ]
            for child in children:
                child.line()
            for child in children:
                child.go()
            return max(child.seconds() for child in children)

        series = interleaved(
            repeat,
            (Series("warmcc", "warmcc"), lambda _: run("warmcc")),
            (Series("stock", "stock"), lambda _: run("stock")),
        )
        return Outcome("sixteen_clients", TITLE, series, ("warmcc", "stock"))

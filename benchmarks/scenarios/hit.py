"""Nothing changed: in the same process, and in a new one that has torch imported."""

from __future__ import annotations

from benchmarks.harness import FRESH, Outcome, Series, World, interleaved

TITLE = "nothing changed, new process (torch imported)"
REPEAT = 15
CODE = """
source = sys.argv[1]
def call():
    start = time.perf_counter()
    module = cpp.load_inline("unchanged", source, functions=["f"])
    return time.perf_counter() - start
seconds = call()
if sys.argv[2] == "again":
    seconds = call()
report(seconds)
"""


def measure(repeat: int) -> Outcome:
    """Both sides are built first, outside the measurement."""
    source = FRESH.format(n=4)
    with World(WARMCC_PREWARM="") as world:
        world.start(wait=False)
        for side in ("warmcc", "stock"):
            world.run(side, CODE, source, "first")
        series = interleaved(
            repeat,
            (Series("warmcc", "warmcc"), lambda _: world.run("warmcc", CODE, source, "first")),
            (Series("stock", "stock"), lambda _: world.run("stock", CODE, source, "first")),
            (Series("warmcc, same process", "warmcc"), lambda _: world.run("warmcc", CODE, source, "again")),
            (Series("stock, same process", "stock"), lambda _: world.run("stock", CODE, source, "again")),
        )
        return Outcome("hit", TITLE, series, ("warmcc", "stock"))

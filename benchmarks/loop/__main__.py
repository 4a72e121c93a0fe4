"""``python -m benchmarks.loop``: the daily work of a model that writes kernels, by stock and by
warmcc.

The daemon has its default settings, is warm and idle when the first call comes, and knows none of
the calls. Stock makes the first calls of the same draw, as many as it can in ``--stock-seconds``,
with as many callers. Data goes to standard output, talk to standard error.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

from benchmarks.harness import machine, say
from benchmarks.harness.cuda import CudaWorld
from benchmarks.loop.draw import Drawn, calls
from benchmarks.loop.report import figures, rows
from benchmarks.loop.run import Run, run
from warmcc.client.cli.display.output import table


def main() -> None:
    arguments = _arguments()
    draw = calls(arguments.calls, arguments.seed)
    stock = _stock(draw, arguments.callers, arguments.stock_seconds)
    world = CudaWorld(fallback="1")
    del world.environment["WARMCC_PREWARM_IDLE"]  # as users have it
    with world:
        world.wait_for_pch()
        world.wait_for_cuda()
        world.wait_idle()
        before = world.status()["accelerators"]["cuda"]
        ours = run(world, "warmcc", draw, arguments.callers)
        after = world.status()["accelerators"]["cuda"]
    cuda = {name: _grown(before[name], after[name]) for name in ("used", "not_faster")}
    found = figures(draw, stock, ours, cuda) | {
        "callers": arguments.callers,
        "seed": arguments.seed,
    }
    table(rows(found))
    if arguments.json:
        runs = [asdict(one) for one in (stock, ours) if one is not None]
        kept = {"machine": machine.facts(), "figures": found, "runs": runs}
        Path(arguments.json).write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def _stock(draw: list[Drawn], callers: int, limit: float) -> Run | None:
    """Stock's part, in a place without a daemon, until its time is over."""
    if limit <= 0:
        return None
    ends = time.monotonic() + limit
    world = CudaWorld()
    try:
        return run(world, "stock", draw, callers, lambda: time.monotonic() > ends)
    finally:
        world.__exit__()


def _grown(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {
        name: count - before.get(name, 0)
        for name, count in after.items()
        if count > before.get(name, 0)
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.loop", description=(__doc__ or "").partition("\n\n")[0]
    )
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--callers", type=int, default=1, help="processes that call at once")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default: 1)")
    parser.add_argument(
        "--stock-seconds", type=float, default=1800, metavar="S",
        help="begin no call of stock's after that many seconds; 0: none (default: 1800)",
    )  # fmt: skip
    parser.add_argument("--json", metavar="FILE")
    found = parser.parse_args()
    if found.calls < 1 or found.callers < 1:
        parser.error("--calls and --callers have to be 1 or more")
    say(f"{found.calls} calls, {found.callers} at a time")
    return found


if __name__ == "__main__":
    main()

"""What every scenario needs: samples taken in turns, a daemon of its own, and users' processes to
measure in.

A benchmark that measures the wrong thing is worse than none. Scenarios therefore ask the daemon's
counters and look at stock's objects whether each side did what the figure claims (``World.expect``,
``World.stock_compiles``), and fail if not.
"""

from benchmarks.harness.callers import Answer, Call, Caller, kill_family, new_number, new_toy
from benchmarks.harness.measuring import Unsound, interleaved, say, seconds
from benchmarks.harness.world import Side, World, plain_environment

__all__ = [
    "Answer", "Call", "Caller", "Side", "Unsound", "World", "interleaved", "kill_family",
    "new_number", "new_toy", "plain_environment", "say", "seconds",
]  # fmt: skip

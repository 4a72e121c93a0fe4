"""The states in which a daemon may be when a call comes, and what it says of itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.harness import Unsound, say
from benchmarks.harness.cuda import CudaWorld

STOCK = "stock"
STARTED, WARMING, WARM = STATES = ("just started", "warming", "warm")
SETTLE_SECONDS = 1800.0
# Polls in a row that find nothing under way: a profile is begun a moment after the build that
# wants it.
_QUIET = 3
_POLL_SECONDS = 1.0


class RoadWorld(CudaWorld):
    """A daemon as users have it, on an empty cache, or the place alone where stock builds.

    Three settings are not the defaults: samples are off, because those of a warm daemon would run
    beside what is measured next; no flags are warmed up but the default ones, because the others
    shall be new; and an autostarted daemon is none of this world's. Stock torch is taken where the
    daemon declines, as it is for users.
    """

    def __init__(self, *, prewarm_cuda: bool) -> None:
        super().__init__(fallback="1", sample_after="0")
        self.environment["WARMCC_PREWARM_CUDA"] = str(int(prewarm_cuda))

    def wait_settled(self, limit: float = SETTLE_SECONDS) -> None:
        """Wait until the daemon makes nothing warm any more."""
        quiet = 0

        def settled() -> bool:
            nonlocal quiet
            quiet = quiet + 1 if is_settled(self.status()) else 0
            return quiet >= _QUIET

        if not _wait(settled, limit):
            say(f"  the daemon has been warming up for {limit:g} s; going on")

    def wait_warming(self, limit: float = 300.0) -> None:
        """Wait until the daemon is in the middle of warming up: something is being made. Raises
        Unsound.
        """
        if not _wait(lambda: "building" in states(self.status()), limit):
            raise Unsound(
                f"the daemon has made nothing warm within {limit:g} s:\n"
                f"{self.log_tail('daemon.log')}"
            )


def _wait(condition: Callable[[], bool], limit: float) -> bool:
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def states(status: dict[str, Any]) -> set[str]:
    """The states of its profiles, in one word each: "building" is what is under way, a warm level
    included.
    """
    found = {
        "building" if profile["state"] == "waiting" else profile["state"]
        for profile in status["profiles"]
    }
    for profile in status["accelerators"]["cuda"]["profiles"]:
        growing = "not warm yet" in profile["no_warm_level"].values()
        found.add("building" if growing else profile["state"])
    return found


def is_settled(status: dict[str, Any]) -> bool:
    return not status["prewarming"] and not status["flights"] and "building" not in states(status)


def counted(status: dict[str, Any]) -> dict[str, int]:
    """How often the daemon went each way, by its name."""
    requests, accelerators = status["requests"], status["accelerators"]
    groups = {
        "left to stock: ": {**requests["declined"], **requests["fallbacks"], **requests["refused"]},
        "way ": accelerators["ways"]["used"],
        "fell from ": accelerators["ways"]["fallbacks"],
        "cuda ": accelerators["cuda"]["used"],
    }
    found = {
        "hit": requests["hits"],
        "failed": requests["failed"],
        "PCH": accelerators["pch"]["used"],
        "units reused": status["units_reused"],
    }
    return found | {
        prefix + name: count for prefix, group in groups.items() for name, count in group.items()
    }


def way(before: dict[str, int], after: dict[str, int]) -> str:
    """Which ways were gone in between: ``cuda exact 6, PCH 1``."""
    grown = {
        name: count - before.get(name, 0)
        for name, count in after.items()
        if count > before.get(name, 0)
    }
    return ", ".join(f"{name} {count}" for name, count in grown.items())

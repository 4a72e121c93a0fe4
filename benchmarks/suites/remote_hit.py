"""A C++ toy that another machine has built: the daemon has an empty cache and nothing warm, and
finds the result in the remote store (a folder). In a new process that has torch imported: from the
call to the module.

Each sample has a daemon and a cache of its own. In the same turns: the same without the result (a
cold build, which is given to the remote store and is what the next sample finds), and stock.
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

from benchmarks.harness import (
    Call,
    Caller,
    Unsound,
    World,
    interleaved,
    new_toy,
    seconds,
)
from benchmarks.harness.results import Outcome, Target, pair

TITLE = "remote: built by another machine"
REPEAT = 5
RATIO = 5.0
GIVEN_SECONDS = 60.0


def remote_of(world: World, name: str) -> dict[str, Any]:
    """What a daemon says of its remote store, once it has counted one event. Raises Unsound."""
    deadline = time.monotonic() + GIVEN_SECONDS
    while True:
        found: dict[str, Any] = world.status()["remote"]
        if found[name] == 1:
            return found
        if time.monotonic() > deadline:
            raise Unsound(f"nothing was {name}: {found}\n{world.log_tail('daemon.log')}")
        time.sleep(0.1)


def measure(repeat: int) -> Outcome:
    given: list[Call] = []
    with tempfile.TemporaryDirectory(prefix="wcc-remote-") as remote, World(pch="0") as plain:
        settings = {"remote": remote, "pch": "0", "prewarm": ""}

        def stock() -> float:
            with Caller(plain, "stock") as caller:
                return caller.make("stock", new_toy())

        def cold() -> float:
            call = new_toy()
            with World(**settings) as world:
                with Caller(world, "warmcc") as caller:
                    taken = caller.make("warmcc", call)
                remote_of(world, "given")
            given.append(call)
            return taken

        def found() -> float:
            with World(**settings) as world:
                with Caller(world, "warmcc") as caller:
                    taken = caller.make("warmcc", given[-1])
                remote_of(world, "found")
            return taken

        cold()
        taken = interleaved(repeat, {"stock": stock, "cold": cold, "found": found})
    headline = pair("", taken["stock"], taken["found"])
    own = pair("warmcc's own cold build, instead of stock's", taken["cold"], taken["found"])
    return Outcome(
        headline, [own],
        [
            Target(
                f"a cold build takes {own.ratio:.2g} times as long as a result that another "
                f"machine has built ({seconds(own.warmcc.median)}), at least {RATIO:g}",
                own.ratio >= RATIO,
            )
        ],
        {"found": repeat, "given": repeat + 1},
    )  # fmt: skip

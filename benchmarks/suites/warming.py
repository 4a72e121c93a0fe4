"""From the start of a daemon with an empty cache until everything is made that it makes before
anybody asks (its default settings, without what it makes when it is idle for long): until a C++
toy is fast, until C++ with pybind11 and CUDA are, and until all is made. Beside one build by stock
each: a C++ toy, and a CUDA toy behind ``torch/extension.h``. The toy is built then, beside what is
still being made.
"""

from __future__ import annotations

import os
import shutil
import time

from benchmarks.harness import Call, Caller, Unsound, World, cuda, interleaved, new_toy, seconds
from benchmarks.harness.cuda import CudaWorld
from benchmarks.harness.results import Outcome, Pair, Target, pair

TITLE = "start to warm: C++, beside one build"
REPEAT = 1
LIMIT_SECONDS = 1800.0
CPP, PYTHON, CUDA, ALL = "C++", "C++ with pybind11", "CUDA", "all"
TOY = "the C++ toy then"
# How many of stock's builds each may take
MOST = {CPP: 1.3, CUDA: 1.2, ALL: 2.0}


def warmed(*, with_cuda: bool) -> dict[str, float]:
    """When each was made."""
    found: dict[str, float] = {}
    started = time.monotonic()
    with CudaWorld() if with_cuda else World() as world:
        while True:
            status, at = world.status(), time.monotonic() - started
            ready = [one["title"] for one in status["profiles"] if one["state"] == "ready"]
            if any("lean" in title for title in ready) and CPP not in found:
                found[CPP] = at
                found[TOY] = _toy(world)
            if sum("lean" in title for title in ready) == 2:
                found.setdefault(PYTHON, at)
            if any(one["language"] == "CUDA" and one["state"] == "warm"
                   for one in status["prewarmed"]):  # fmt: skip
                found.setdefault(CUDA, at)
            if not status["prewarming"]:
                return {**found, ALL: at}
            if at > LIMIT_SECONDS:
                raise Unsound(f"it does not get warm:\n{world.log_tail('daemon.log')}")
            time.sleep(0.5)


def _toy(world: World) -> float:
    """What a toy takes that needs nothing else. Raises Unsound."""
    before = world.counters()
    with Caller(world, "warmcc") as caller:
        taken = caller.make("warmcc", new_toy())
    if world.counters()["pch_used"] == before["pch_used"]:
        raise Unsound("the toy did without the precompiled header")
    return taken


def stock(make: Call) -> float:
    with CudaWorld(pch="0", prewarm="") as world, Caller(world, "stock") as caller:
        return caller.make("stock", make)


def measure(repeat: int) -> Outcome:
    home = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    with_cuda = shutil.which("nvcc", path=f"{home}/bin") is not None
    times: list[dict[str, float]] = []

    def ours() -> float:
        times.append(warmed(with_cuda=with_cuda))
        return times[-1][ALL]

    measures = {"warmcc": ours, "stock C++": lambda: stock(new_toy())}
    if with_cuda:
        measures["stock CUDA"] = lambda: stock(cuda.toy("#include <torch/extension.h>\n"))
    taken = interleaved(repeat, measures)
    whole = "stock CUDA" if with_cuda else "stock C++"
    beside = dict.fromkeys((CPP, TOY, PYTHON), "stock C++") | {CUDA: "stock CUDA", ALL: whole}
    pairs: dict[str, Pair] = {
        name: pair("" if name == CPP else name, taken[other], [one[name] for one in times])
        for name, other in beside.items()
        if all(name in one for one in times)
    }
    targets = [
        Target(
            f"{name}: {seconds(one.warmcc.median)}, {1 / one.ratio:.1f} builds of "
            f"{seconds(one.stock.median)}, at most {MOST[name]:g}",
            1 / one.ratio <= MOST[name],
        )
        for name, one in pairs.items()
        if name in MOST
    ]
    return Outcome(pairs[CPP], [one for name, one in pairs.items() if name != CPP], targets)

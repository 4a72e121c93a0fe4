"""Twelve lists of flags for C++, as public calls have them, each new to a daemon that is warm for
the default flags; then each a second time with another source, when the daemon is idle.
"""

from __future__ import annotations

from benchmarks.harness import Call, World, flag_lists, new_toy
from benchmarks.harness.flag_lists import Flags
from benchmarks.harness.results import Outcome

TITLE = "C++: twelve lists of flags, first sight"
REPEAT = 1

_LISTS: list[Flags] = [
    (words.split(), [])
    for words in (
        "-O3",
        "-O2",
        "-Ofast",
        "-march=native",
        "-fopenmp",
        "-g",
        "-DN_WIDE=64",
        "-Wall -Wextra",
        "-std=c++17",
        "-O3 -march=native",
        "-O3 -ffast-math -fopenmp",
        "-O2 -std=c++17",
    )
]


def measure(repeat: int) -> Outcome:
    with World() as world:
        world.wait_for_pch()
        return flag_lists.measure(world, _LISTS * repeat, _call, (0.5, 0.15))


def _call(flags: Flags) -> Call:
    call = new_toy()
    call.arguments["extra_cflags"] = flags[0]
    return call

"""``python -m benchmarks.jobs``: in its short form, and that it finds what is wrong."""

from __future__ import annotations

import os

import pytest

from benchmarks import jobs
from benchmarks.harness.job_sides import sides
from warmcc import Finished


@pytest.mark.slow
def test_sixty_programs_of_which_every_other_one_misbehaves() -> None:
    with sides(2) as three:
        outcome = jobs.put(three, 60)
    assert (outcome.wrong, outcome.left) == ([], [])
    assert sum(outcome.kinds.values()) == 60 and len(outcome.kinds) == len(jobs.KINDS)


@pytest.mark.slow
def test_three_roads_give_the_same() -> None:
    codes = [f"import torch\nprint({n}, torch.__name__)" for n in range(3)]
    with sides(2) as three:
        texts = [road(codes) for road in (
            three.by_subprocess, three.by_multiprocessing, three.by_runner,
        )]  # fmt: skip
    assert texts == [[f"{n} torch\n" for n in range(3)]] * 3


def kind(name: str) -> jobs.Kind:
    return next(one for one in jobs.KINDS if one.name == name)


@pytest.mark.parametrize(
    ("name", "done", "said"),
    [
        ("right", Finished(0, b"7\n", b"", 1.0), ""),
        ("right", Finished(0, b"8\n", b"", 1.0), "printed b'8"),
        ("right", Finished(-9, b"7\n", b"", 1.0), "code -9, not 0"),
        ("right", Finished(0, b"7\n", b"", 1.0, cut=True), "ended by ['cut']"),
        ("exit code", Finished(7, b"", b"", 1.0), ""),
        ("exit code", Finished(0, b"", b"", 1.0), "code 0, not 7"),
        ("sleeps", Finished(-9, b"", b"", 1.0, timed_out=True), ""),
        ("sleeps", Finished(-9, b"", b"", 1.0), "ended by []"),
        ("eats memory", Finished(-9, b"", b"", 1.0, out_of_memory=True), ""),
        ("floods", Finished(0, b"x", b"", 1.0, cut=True), ""),
    ],
)
def test_a_wrong_result_is_a_complaint(name: str, done: Finished, said: str) -> None:
    found = kind(name).complaint(7, done)
    assert found.startswith(said) if said else found == ""


def test_what_was_added_is_told() -> None:
    before = jobs.Look(files=5, threads=1, children=2, zombies=0, memory=100)
    after = jobs.Look(files=6, threads=1, children=1, zombies=1, memory=100 + jobs.GROWTH)
    assert after.more(before) == ["1 more files", "1 more zombies"]
    assert jobs.Look.at(os.getpid()).files > 0

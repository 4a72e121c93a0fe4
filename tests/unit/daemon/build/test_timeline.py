"""The log's seconds per step are those in which one ran."""

from __future__ import annotations

from warmcc.daemon.build.timeline import Timeline


def test_what_lies_between_two_steps_of_a_kind_is_not_theirs() -> None:
    timeline = Timeline(0.0)
    timeline.add("ptxas", "first", 0.0, 0.1)
    timeline.add("cicc", "second", 0.1, 100.0)
    timeline.add("ptxas", "second", 100.0, 100.2)
    assert timeline.steps() == {"ptxas": 0.3, "cicc": 99.9}


def test_steps_side_by_side_count_once() -> None:
    timeline = Timeline(0.0)
    timeline.add("compile", "a", 1.0, 4.0)
    timeline.add("compile", "b", 0.0, 2.0)
    timeline.add("compile", "c", 1.5, 1.7)
    assert timeline.steps() == {"compile": 4.0}

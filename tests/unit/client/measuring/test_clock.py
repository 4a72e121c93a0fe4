"""Samples per call: their number, their order, and what a row that fails leaves. No test asserts a
time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from warmcc.client.measuring.calls import clock
from warmcc.client.measuring.calls.clock import Row


def test_each_row_gets_its_samples_and_its_arguments() -> None:
    seen = []
    rows = [
        Row("plain", "", lambda *given, **named: seen.append((given, named)), (1, "a"), {"k": 2}),
        Row("measured", "", lambda: None, measured=lambda: 0.25),
    ]
    clock.sample(rows, 5)
    assert all(one == ((1, "a"), {"k": 2}) for one in seen)
    assert len(rows[0].samples) == 5 and min(rows[0].samples) > 0
    assert rows[1].samples == [0.25] * 5
    assert len(seen) > 5 * rows[0].calls


def test_rows_take_turns_and_every_other_turn_goes_backwards() -> None:
    order: list[str] = []

    @contextlib.contextmanager
    def mark(name: str) -> Iterator[None]:
        order.append(name)
        yield

    rows = [Row(name, "", lambda: None, measured=lambda: 1.0) for name in "ab"]
    clock.sample(rows, 3, mark)
    assert order == ["a", "b", "b", "a", "a", "b"]


def test_a_row_that_fails_is_left_out_with_its_reason() -> None:
    left = [40]

    def fail() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise ValueError("no more\nof it")

    def fail_at_once() -> None:
        raise KeyError("k")

    rows = [Row("late", "", fail), Row("early", "", fail_at_once), Row("fine", "", lambda: None)]
    clock.sample(rows, 4)
    assert [(row.failure, len(row.samples)) for row in rows] == [
        ("ValueError: no more", 0), ("KeyError: 'k'", 0), ("", 4),
    ]  # fmt: skip


def test_a_row_is_called_in_its_surroundings() -> None:
    inside = [0]
    seen = set()

    @contextlib.contextmanager
    def around() -> Iterator[None]:
        inside[0] += 1
        yield
        inside[0] -= 1

    settled: list[int] = []
    row = Row("a", "", lambda: seen.add(inside[0]), around=around, settle=lambda: settled.append(1))
    clock.sample([row], 3)
    assert seen == {1} and inside == [0] and len(settled) == 2 + 2 * 3


def test_a_fast_call_is_repeated_in_a_sample_and_a_slow_one_is_not() -> None:
    import time

    fast, slow = Row("fast", "", lambda: None), Row("slow", "", lambda: time.sleep(0.002))
    clock.sample([fast, slow], 2)
    assert fast.calls > 50 and slow.calls == 1


def test_percentiles_are_samples_in_order() -> None:
    found = clock.percentiles([float(one) for one in range(101)][::-1])
    assert found == {"p5": 5.0, "p50": 50.0, "p95": 95.0, "p99": 99.0}
    assert set(clock.percentiles([2.0]).values()) == {2.0}


def test_calling_for_a_profiler_ends() -> None:
    count = [0]

    def call() -> None:
        count[0] += 1

    clock.call_for(Row("a", "", call), 0.01)
    assert count[0] >= 100
    with pytest.raises(ZeroDivisionError):
        clock.call_for(Row("a", "", lambda: 1 / 0), 0.01)

"""The benchmark of a model's daily work: what it draws, and what it makes of what came."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.harness.world import World
from benchmarks.loop import kernels
from benchmarks.loop.draw import EDIT, NEW, REPEAT, Drawn, calls
from benchmarks.loop.report import figures, rows
from benchmarks.loop.run import Run, Sample, run
from tests.support.calls import module_source

DRAW = calls(4000, seed=7)


def test_a_draw_is_known_by_its_seed() -> None:
    assert calls(50, seed=7) == DRAW[:50]
    assert calls(50, seed=8) != DRAW[:50]


def test_calls_come_with_their_frequencies() -> None:
    kinds = Counter(one.kind for one in DRAW)
    assert 0.55 < kinds[NEW] / len(DRAW) < 0.65
    assert 0.17 < kinds[EDIT] / len(DRAW) < 0.23 and 0.17 < kinds[REPEAT] / len(DRAW) < 0.23
    assert 0.27 < sum(one.wrong != "" for one in DRAW) / len(DRAW) < 0.33
    new = [one for one in DRAW if one.kind == NEW]
    plain = [
        one
        for one in new
        if not any(
            one.arguments.get("extra_cflags", []) + one.arguments.get("extra_cuda_cflags", [])
        )
    ]
    assert 0.69 < len(plain) / len(new) < 0.77
    headed = ["<torch/extension.h>" in one.arguments["cuda_sources"][0] for one in new]
    assert 0.9 < sum(headed) / len(new) < 0.97
    assert {one.kernel for one in new} == {one.name for one in kernels.KERNELS}
    assert {one.wrong for one in new} == {"", *kernels.WRONG}


def test_a_repeat_is_the_call_before_and_an_edit_one_constant() -> None:
    for one in DRAW:
        if one.of is not None:
            before = DRAW[one.of]
            assert before.number == one.of < one.number and not before.wrong
            assert one.arguments["name"] == before.arguments["name"]
            if one.kind == REPEAT:
                assert one.arguments == before.arguments
            elif not one.wrong:
                now = one.arguments["cuda_sources"][0].splitlines()
                was = before.arguments["cuda_sources"][0].splitlines()
                assert 1 <= sum(a != b for a, b in zip(now, was, strict=True)) <= 2
    texts = [str(one.arguments) for one in DRAW if one.kind != REPEAT]
    assert len(set(texts)) == len(texts)


def test_figures_compare_what_both_sides_made() -> None:
    draw = [Drawn(number, NEW, "matmul", "", {}, "") for number in range(3)]
    draw.append(Drawn(3, NEW, "matmul", "syntax", {}, ""))
    ours = Run("warmcc", [Sample(0, 2.0, ""), Sample(1, 4.0, ""), Sample(2, 90.0, ""),
                          Sample(3, 3.0, "RuntimeError: x")], 99.0)  # fmt: skip
    stock = Run("stock", [Sample(0, 20.0, ""), Sample(1, 3.0, "RuntimeError: y")], 23.0)
    found = figures(draw, stock, ours, {"used": {"lean": 3, "exact": 1}, "not_faster": {}})
    assert found["stock's time over warmcc's"] == pytest.approx(23 / 6)
    assert found["other outcomes"] == [1] and found["slower than stock"] == {"1": [3.0, 4.0]}
    assert found["share lean"] == 0.75 and found["error over success"] == pytest.approx(3 / 4)
    assert found["not as drawn"] == {}
    assert ("slower than stock: 1", "3.00 s / 4.00 s") in rows(found)


@pytest.mark.slow
def test_callers_make_all_calls_and_errors_are_answers() -> None:
    def drawn(number: int, source: str, wrong: str) -> Drawn:
        arguments = {"name": f"loop_{number}", "cpp_sources": [source], "no_implicit_headers": True}
        return Drawn(number, NEW, "toy", wrong, arguments, "module is not None")

    draw = [drawn(number, module_source(number, f"loop_{number}"), "") for number in range(3)]
    draw.append(drawn(3, "int wrong = ;", "syntax"))
    with World(ccache="0", prewarm="") as world:
        came = run(world, "warmcc", draw, callers=2)
        left = run(world, "warmcc", draw, callers=1, until=lambda: True)
    assert [one.number for one in came.samples] == [0, 1, 2, 3] and left.samples == []
    assert [bool(one.error) for one in came.samples] == [False, False, False, True]
    assert came.seconds >= max(one.seconds for one in came.samples)
    assert "error: expected primary-expression" in came.samples[3].error

"""The arithmetic of ``python -m benchmarks.gpu_timing``, and what it says where there is no GPU."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from benchmarks.gpu_timing.__main__ import Sides, verdict
from benchmarks.gpu_timing.paired import Comparison, compare, interval, sign_test
from tests.support import ROOT


def noisy(mean: float, count: int = 50, seed: int = 0) -> list[float]:
    chance = random.Random(seed)
    return [mean * chance.gauss(1, 0.02) for _ in range(count)]


def test_equal_series_are_equal_and_others_are_not() -> None:
    equal = compare(noisy(1e-3), noisy(1e-3, seed=1))
    slower = compare(noisy(1e-3), noisy(1.12e-3, seed=1))
    assert (verdict(equal), verdict(slower)) == ("equal", "slower")
    assert equal.low < 1 < equal.high and equal.p > 0.05
    assert 1.08 < slower.low < slower.ratio < slower.high < 1.16 and slower.p < 1e-6
    assert verdict(compare(noisy(1.12e-3), noisy(1e-3))) == "faster"


def test_a_difference_that_is_certain_and_tiny_is_none() -> None:
    python = [1.0] * 50
    assert verdict(compare(python, [1.002] * 50)) == "equal"


def test_the_sign_test() -> None:
    assert sign_test([1.1] * 10) == pytest.approx(2 / 1024)
    assert sign_test([1.1, 0.9]) == 1.0 == sign_test([1.0])


def test_the_interval_repeats_and_holds_the_median() -> None:
    ratios = noisy(1.0)
    low, high = interval(ratios)
    assert (low, high) == interval(ratios) and low < sorted(ratios)[25] < high


@pytest.mark.parametrize(("python", "warmcc"), [([], []), ([1.0], [1.0, 2.0])])
def test_what_is_no_pairs(python: list[float], warmcc: list[float]) -> None:
    with pytest.raises(ValueError, match="no pairs"):
        compare(python, warmcc)


def test_a_verdict_needs_all_of_the_interval() -> None:
    assert verdict(Comparison(1, 1.1, 1.1, 0.99, 1.2, 0.01, 40, 50)) == "equal"


@pytest.mark.slow
def test_without_a_gpu_nothing_is_measured() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_timing", "--repeat", "1"], cwd=ROOT,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    if done.returncode == 0:
        pytest.skip("there is a GPU")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "there is no GPU that torch can use: nothing is measured\n"


@pytest.mark.slow
def test_what_is_not_sound_is_found(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A side that is not what it says: the program alone, without a GPU."""
    sides = Sides(str(tmp_path_factory.mktemp("gpu")), "-")
    sides._environment["WARMCC_RUN_ZYGOTES"] = "0"
    program = sides._script
    with open(program, "w", encoding="utf-8") as file:
        file.write(
            "import json, sys\nprint(json.dumps({'found_torch': 'torch' in sys.modules,"
            " 'fresh': False, 'times': {}, 'seconds': 0}))\n"
        )
    with pytest.raises(RuntimeError, match="CUDA was initialised when the program began"):
        sides.run("python")
    with pytest.raises(RuntimeError, match="python runs it"):
        sides.run("warmcc")

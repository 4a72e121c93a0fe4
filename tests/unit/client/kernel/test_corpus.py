"""All kernels of the corpus compile without a GPU; tests/gpu runs them."""

from __future__ import annotations

import os

import pytest
import torch

import warmcc
from tests.support.kernels import Case, cases
from warmcc import nvrtc

LIBRARY = nvrtc.library(os.path.dirname(torch.__file__), dict(os.environ))
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="needs libnvrtc")
SLOW = ("cub", "libcuxx", "wmma", "cooperative", "clusters", "whole_grid", "eight_bits")


def each() -> list[object]:
    return [
        pytest.param(
            one, id=one.name,
            marks=[pytest.mark.slow] if any(word in one.name for word in SLOW) else [],
        )
        for one in cases()
    ]  # fmt: skip


def test_there_are_at_least_25() -> None:
    assert len(cases()) >= 25
    assert len({one.name for one in cases()}) == len(cases())


@pytest.mark.parametrize("one", each())
def test_compiles(one: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARMCC_DISABLE", "1")
    kernel = warmcc.kernel(one.source, one.expression, **one.made)
    made = kernel.compile("sm_90")
    assert made.image[:4] == b"\x7fELF" and made.outcome == "local"
    assert made.names[kernel.expression].encode() in made.image

"""Samples of the benchmark of cases off the road."""

from __future__ import annotations

import dataclasses
from typing import Any

from benchmarks.road.cases import ERROR, FIRST
from benchmarks.road.measure import Sample
from benchmarks.road.worlds import STOCK

RIGHT = {"right": True, "symbols": "2 abc"}

REFUSED = {"classes": ["RuntimeError", "Exception"], "message": "'x' was not declared", "text": ""}


def sample(side: str = STOCK, seconds: float = 10.0, moment: str = FIRST, **changes: Any) -> Sample:
    answer = REFUSED if moment == ERROR else RIGHT
    return dataclasses.replace(
        Sample("cpp-O3", 2, 0, side, moment, [seconds], 8.0, "", answer), **changes
    )

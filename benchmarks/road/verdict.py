"""What samples come to: ratios, what is slower than stock, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.harness.results import Pair, Series
from benchmarks.road.cases import CASES, ERROR, MOMENTS
from benchmarks.road.measure import Sample
from benchmarks.road.worlds import STATES, STOCK

LIMIT = 1.1  # how many times stock's time a call may take


@dataclass(frozen=True)
class Cell:
    """One moment of a case in one state of the daemon, beside stock. ``busy``: processor seconds
    for each second of stock's and of warmcc's call; those of warmcc have what the daemon made warm
    beside it."""

    case: str
    moment: str
    cores: int
    state: str
    pair: Pair
    way: str
    busy: tuple[float, float]

    @property
    def is_slower(self) -> bool:
        return self.pair.ratio < 1

    @property
    def is_over(self) -> bool:
        return self.pair.ratio < 1 / LIMIT


def cells(samples: Iterable[Sample]) -> list[Cell]:
    """Every cell for which there is stock's side, in the order of the table."""
    kept: dict[tuple[int, str, str, str], list[Sample]] = {}
    for sample in samples:
        kept.setdefault((sample.cores, sample.case, sample.moment, sample.side), []).append(sample)
    found = []
    for (cores, case, moment, side), ours in kept.items():
        theirs = kept.get((cores, case, moment, STOCK))
        if side != STOCK and theirs is not None:
            pair = Pair(side, _series(theirs), _series(ours))
            ways = " | ".join(dict.fromkeys(sample.way for sample in ours))
            found.append(Cell(case, moment, cores, side, pair, ways, (_busy(theirs), _busy(ours))))
    return sorted(found, key=_place)


def _series(samples: list[Sample]) -> Series:
    return Series([value for sample in samples for value in sample.seconds])


def _busy(samples: list[Sample]) -> float:
    walls = sum(sum(sample.seconds) / len(sample.seconds) for sample in samples)
    return round(sum(sample.cpu for sample in samples) / walls, 2)


def _place(cell: Cell) -> tuple[int, int, int, int]:
    names = list(CASES)
    case = names.index(cell.case) if cell.case in names else len(names)
    return cell.cores, case, MOMENTS.index(cell.moment), STATES.index(cell.state)


def wrong(samples: Iterable[Sample]) -> list[str]:
    """What did not come out as it has to, or not as with stock; a line each."""
    known = list(samples)
    stock = {(s.case, s.cores, s.turn, s.moment): s.answer for s in known if s.side == STOCK}
    found = []
    for sample in known:
        beside = stock.get((sample.case, sample.cores, sample.turn, sample.moment))
        reason = _amiss(sample.moment, sample.answer) or (
            _differs(sample.answer, beside) if beside else ""
        )
        if reason:
            found.append(
                f"{sample.case}, {sample.moment}, {sample.side}, {sample.cores} cores: {reason}"
            )
    return found


def _amiss(moment: str, answer: dict[str, Any]) -> str:
    if moment == ERROR:
        return "" if "classes" in answer else "a mistake was built without an error"
    if "classes" in answer:
        return f"raised {answer['classes'][0]}: {answer['message']}"
    return "" if answer["right"] else "the module is not of this source"


def _differs(ours: dict[str, Any], stock: dict[str, Any]) -> str:
    if "classes" in ours and "classes" in stock:
        if stock["classes"][0] not in ours["classes"]:
            return f"raises {ours['classes'][0]}, stock {stock['classes'][0]}"
        if ours["message"] != stock["message"]:
            return f"says {ours['message']!r}, stock {stock['message']!r}"
    elif ours.get("symbols") != stock.get("symbols"):
        return f"exports functions {ours.get('symbols')}, stock {stock.get('symbols')}"
    return ""

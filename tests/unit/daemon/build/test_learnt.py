"""What fails each time is left out for a while."""

from __future__ import annotations

import pytest

from warmcc.daemon.build import learnt
from warmcc.daemon.build.learnt import Learnt


def test_twice_in_a_row_is_enough() -> None:
    known = Learnt()
    known.failed("gold")
    assert not known.avoids("gold")
    known.failed("gold")
    assert known.avoids("gold")
    assert not known.avoids("mold")
    assert not known.avoids("gold", times=3)


def test_a_success_between_counts() -> None:
    known = Learnt()
    known.failed("gold")
    known.worked("gold")
    known.failed("gold")
    assert not known.avoids("gold")


def test_it_is_tried_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Learnt()
    known.failed("gold")
    known.failed("gold")
    monkeypatch.setattr(learnt, "AGAIN_SECONDS", 0.0)
    assert not known.avoids("gold")


def test_it_does_not_grow_without_end() -> None:
    known = Learnt()
    for number in range(3 * learnt._MOST):
        known.failed(number)
    assert len(known._rows) <= learnt._MOST + 1

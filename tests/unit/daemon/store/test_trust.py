"""What lost trust: its results leave the store for good, others stay; and when a sample may be
compared at all.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.support.shelf import Bench, usage_is_true
from warmcc.daemon.closure.marker import Marker
from warmcc.daemon.store.trust import Trust
from warmcc.daemon.verify.sampling import Inputs


def trust_of(bench: Bench) -> Trust:
    return Trust(bench.folder / "withdrawn.json", bench.store)


@pytest.fixture
def filled(bench: Bench) -> Bench:
    bench.publish("wrong", unit=True, makers=["lean a"])
    bench.publish("right", unit=True, makers=["lean b"])
    bench.publish("old", unit=True)
    bench.publish("module", makers=["", "lean a"])
    return bench


def test_what_a_maker_made_goes_into_quarantine_and_nothing_else_does(filled: Bench) -> None:
    assert trust_of(filled).withdraw("lean a", "f of toy") == 2
    assert filled.find("wrong", unit=True) is None
    assert filled.find("module") is None
    assert filled.find("right", unit=True) and filled.find("old", unit=True)
    assert filled.store.usage()["quarantine"]["count"] == 2
    assert filled.store.verify()["damaged"] == 0
    assert usage_is_true(filled.store)


def test_content_that_another_maker_made_too_stays(filled: Bench) -> None:
    filled.publish("same", b"wrong", unit=True, makers=[""])
    trust_of(filled).withdraw("lean a", "f of toy")
    assert filled.find("wrong", unit=True) is None
    assert filled.find("same", unit=True) == b"wrong"


def test_a_full_disk_is_no_reason_to_keep_what_is_wrong(
    filled: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    trust = trust_of(filled)
    with monkeypatch.context() as patch:
        patch.setattr("warmcc.daemon.store.tree.Tree.write", full)
        assert trust.withdraw("lean a", "f of toy") == 2
    assert filled.find("wrong", unit=True) is None
    assert filled.find("right", unit=True)
    assert usage_is_true(filled.store)


def test_a_later_daemon_remembers_and_finishes_what_a_killed_one_began(filled: Bench) -> None:
    trust_of(filled).withdraw("lean a", "f of toy")
    filled.publish("late", unit=True, makers=["lean a"])
    filled.again()
    later = trust_of(filled)
    assert "lean a" not in later
    assert "lean b" in later
    assert later.withdrawn == {"lean a": "f of toy"}
    assert later.clear() == 1
    assert filled.find("late", unit=True) is None


@pytest.mark.parametrize("damage", ["", "[]", "{", '{"a": 1}', "\x00"])
def test_a_damaged_record_is_no_reason_to_fail(bench: Bench, damage: str) -> None:
    (bench.folder / "withdrawn.json").write_text(damage)
    assert trust_of(bench).withdraw("lean a", "f") == 0
    assert "lean a" not in trust_of(bench)


def test_inputs_that_changed_during_or_after_a_build_are_told(tmp_path: Path) -> None:
    header = tmp_path / "a.h"
    header.write_text("int a;")
    marker = Marker.take(tmp_path, [str(header)])
    same = Inputs.of([str(header), "relative.h"], marker)
    assert same.changed() is None
    time.sleep(0.02)
    header.write_text("int b;")
    assert same.changed() == str(header)
    assert Inputs.of([str(header)], marker).changed() == str(header)
    os.unlink(header)
    assert same.changed() == str(header)
    assert Inputs.of([str(header)], marker).changed() == str(header)

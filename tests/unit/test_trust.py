"""What lost trust: its results leave the store for good, others stay; and when a sample may be compared at all."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from warmcc import digest
from warmcc.daemon.closure import Closure, Closures, Marker
from warmcc.daemon.headers import HeaderWatch
from warmcc.daemon.sampling import Inputs
from warmcc.daemon.store import Kind, Store
from warmcc.daemon.trust import Trust


class Shelf:
    """A store in a folder, with the trust kept beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = Store(folder / "store", 1 << 30, grace=0.0)
        self.trust = Trust(folder / "withdrawn.json", self.store)

    def publish(self, name: str, content: str, kind: Kind = "unit", **meta: Any) -> None:
        made = self.folder / "made"
        made.write_text(content)
        self.store.publish(kind, self.key(name), made, "x.so" if kind == "artifact" else "", Closure(), meta)

    def has(self, name: str, kind: Kind = "unit") -> bool:
        closures = Closures(self.store, HeaderWatch(self.store.get_headers, watching=False))
        return self.store.find(kind, self.key(name), closures) is not None

    @staticmethod
    def key(name: str) -> str:
        return digest.of_bytes(name.encode())


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    found = Shelf(tmp_path)
    found.publish("wrong", "1", makers=["lean a"])
    found.publish("right", "2", makers=["lean b"])
    found.publish("old", "3")
    found.publish("module", "4", kind="artifact", makers=["", "lean a"])
    return found


def test_what_a_maker_made_goes_into_quarantine_and_nothing_else_does(shelf: Shelf) -> None:
    assert shelf.trust.withdraw("lean a", "f of toy") == 2
    assert not shelf.has("wrong")
    assert not shelf.has("module", "artifact")
    assert shelf.has("right") and shelf.has("old")
    assert shelf.store.usage()["quarantine"]["count"] == 2
    assert shelf.store.verify()["damaged"] == 0


def test_content_that_another_maker_made_too_stays(shelf: Shelf) -> None:
    shelf.publish("same", "1", makers=[""])
    shelf.trust.withdraw("lean a", "f of toy")
    assert not shelf.has("wrong")
    assert shelf.has("same")


def test_a_later_daemon_remembers_and_finishes_what_a_killed_one_began(shelf: Shelf) -> None:
    shelf.trust.withdraw("lean a", "f of toy")
    shelf.publish("late", "5", makers=["lean a"])
    later = Shelf(shelf.folder)
    assert "lean a" not in later.trust
    assert "lean b" in later.trust
    assert later.trust.withdrawn == {"lean a": "f of toy"}
    assert later.trust.clear() == 1
    assert not later.has("late")


@pytest.mark.parametrize("damage", ["", "[]", "{", '{"a": 1}', "\x00"])
def test_a_damaged_record_is_no_reason_to_fail(tmp_path: Path, damage: str) -> None:
    (tmp_path / "withdrawn.json").write_text(damage)
    trust = Shelf(tmp_path).trust
    assert trust.withdraw("lean a", "f") == 0
    assert "lean a" not in Shelf(tmp_path).trust


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

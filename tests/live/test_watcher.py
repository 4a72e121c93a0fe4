"""When files are looked at: events are hints, and contents decide."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.edits import save_by_rename
from warmcc.client.live.contents import Contents
from warmcc.client.live.watcher import LOOK_SECONDS, Watcher


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    one = Watcher()
    yield one
    one.close()


def changes(watcher: Watcher, path: Path, before: Contents, seconds: float = 5.0) -> Contents:
    """What is in the file when that is noticed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        watcher.wait()
        if (found := Contents.of([str(path)], (), before)) != before:
            return found
        before = found
    raise AssertionError("the change was not noticed")


@pytest.mark.parametrize(
    "how", ["write", "rename", "truncate", "append", "link", "target", "folder"]
)
def test_every_way_to_save_is_noticed(watcher: Watcher, tmp_path: Path, how: str) -> None:
    folder = tmp_path / "sources"
    folder.mkdir()
    path = real = folder / "kernel.cu"
    real.write_text("one")
    other = tmp_path / "elsewhere"
    other.mkdir()
    if how in ("link", "target"):
        real = other / "kernel.cu"
        real.write_text("one")
        path.unlink()
        path.symlink_to(real)
    before = Contents.of([str(path)])
    watcher.watch(before.files)
    if how == "write":
        path.write_text("two")
    elif how == "rename":
        save_by_rename(path, "two")
    elif how == "truncate":
        with open(path, "r+", encoding="utf-8") as file:
            file.truncate()
            file.write("two")
    elif how == "append":
        with open(path, "a", encoding="utf-8") as file:
            file.write("two")
    elif how == "link":
        (other / "second.cu").write_text("two")
        path.unlink()
        path.symlink_to(other / "second.cu")
    elif how == "target":
        save_by_rename(real, "two")
    else:
        os.rename(folder, tmp_path / "old")
        watcher.wait()
        folder.mkdir()
        watcher.wait()
        path.write_text("two")
    changes(watcher, path, before)


def test_touches_change_nothing(watcher: Watcher, tmp_path: Path) -> None:
    path = tmp_path / "kernel.cu"
    path.write_text("one")
    before = Contents.of([str(path)])
    watcher.watch(before.files)
    began, looks = time.monotonic(), 0
    for _ in range(1000):
        path.touch()
    while time.monotonic() < began + 2 * LOOK_SECONDS:
        watcher.wait()
        looks += 1
        assert Contents.of([str(path)], (), before) == before
    assert looks < 200


def test_two_writes_in_one_tick_of_the_clock_are_two(tmp_path: Path) -> None:
    path = tmp_path / "kernel.cu"
    path.write_text("one")
    before = Contents.of([str(path)])
    path.write_text("two")
    os.utime(path, ns=(before.stats[str(path)][0],) * 2)  # type: ignore[index]
    assert Contents.of([str(path)], (), before) != before


def test_a_missing_file_is_a_content_too(tmp_path: Path) -> None:
    path = tmp_path / "kernel.cu"
    before = Contents.of([str(path)])
    assert before.files == {str(path): None}
    path.write_text("")
    assert Contents.of([str(path)], (), before) != before

"""Trails: what happens on the way to a path is noticed, whatever it is, and what happens beside it
is not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from warmcc.daemon.system import trails
from warmcc.daemon.system.inotify import Watches
from warmcc.daemon.system.trails import Paths, Trails, candidates


class Bench:
    """A path ``top/link/file``, where ``link`` leads to the folder ``real``; and its trail."""

    def __init__(self, folder: Path, watches: Watches) -> None:
        self.top = folder / "top"
        self.real = self.top / "real"
        self.real.mkdir(parents=True)
        (self.top / "link").symlink_to("real")
        self.file = self.real / "file"
        self.file.write_text("one")
        files = frozenset({f"{self.top}/link/file", f"{self.top}/none/at/all"})
        self.paths = Paths(files, listed=frozenset({f"{self.top}/list"}))
        self.watches = watches
        self.trails = Trails(self.watches)
        assert not self.settled(), "what was looked at before the first time was not watched"
        assert self.settled()

    def settled(self) -> bool:
        self.watches.drain()
        return self.trails.settled(self.paths)


@pytest.fixture
def watches() -> Iterator[Watches]:
    one = Watches()
    yield one
    one.close()


@pytest.fixture
def bench(tmp_path: Path, watches: Watches) -> Bench:
    return Bench(tmp_path, watches)


def _retarget(bench: Bench) -> None:
    (bench.top / "link").unlink()
    (bench.top / "link").symlink_to("other")


def _replace(bench: Bench) -> None:
    (bench.top / "new").write_text("two")
    os.replace(bench.top / "new", bench.file)


def _write_in_place(bench: Bench) -> None:
    with open(bench.file, "r+") as file:
        file.write("two")


CHANGES: dict[str, Callable[[Bench], object]] = {
    "written": _write_in_place,
    "replaced": _replace,
    "removed": lambda bench: bench.file.unlink(),
    "another mode": lambda bench: bench.file.chmod(0o700),
    "the link leads elsewhere": _retarget,
    "a folder above was renamed": lambda bench: bench.top.rename(bench.top.with_name("elsewhere")),
    "the folder was renamed": lambda bench: bench.real.rename(bench.top / "elsewhere"),
    "a missing folder is there": lambda bench: (bench.top / "none").mkdir(),
    "a missing folder that is listed is there": lambda bench: (bench.top / "list").mkdir(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_happens_on_the_way_is_noticed(change: str, bench: Bench) -> None:
    shown = bench.watches.page.count
    CHANGES[change](bench)
    assert not bench.settled()
    assert bench.watches.page.count > shown
    assert bench.settled(), "it is watched again"


def test_what_happens_in_a_listed_folder_is_noticed(bench: Bench) -> None:
    (bench.top / "list").mkdir()
    bench.settled()
    assert bench.settled()
    (bench.top / "list/any").touch()
    assert not bench.settled()


def test_what_happens_beside_it_is_not(bench: Bench) -> None:
    shown = bench.watches.page.count
    (bench.top / "beside").mkdir()
    (bench.real / "another").write_text("text")
    assert bench.settled()
    assert bench.watches.page.count == shown


def test_a_file_with_two_names_is_watched_under_both(bench: Bench, tmp_path: Path) -> None:
    other = tmp_path / "second name"
    os.link(bench.file, other)
    assert not bench.settled(), "it got the second name"
    assert bench.settled()
    with open(other, "r+") as file:
        file.write("two")
    assert not bench.settled()


@pytest.mark.parametrize("path", ["relative/path", "/proc/self/status"])
def test_what_cannot_be_watched_never_settles(path: str, watches: Watches) -> None:
    one = Trails(watches)
    for _ in range(3):
        watches.drain()
        assert not one.settled(Paths(frozenset({path})))
    assert len(watches) == 0


def test_what_cannot_be_watched_is_no_change_for_others(bench: Bench) -> None:
    """A client with another answer would ask the daemon again, each time that this one is looked
    at.
    """
    hopeless = Paths(frozenset({"/proc/self/status"}))
    assert not bench.trails.settled(hopeless)
    shown = bench.watches.page.count
    assert not bench.trails.settled(hopeless)
    assert bench.watches.page.count == shown


def test_what_could_not_be_watched_is_tried_again_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Paths(frozenset({f"{bench.real}/another"}))
    with monkeypatch.context() as patch:
        patch.setattr(bench.watches, "limit", 0)
        assert [bench.trails.settled(here) for _ in range(3)] == [False] * 3
    assert not bench.trails.settled(here), "it was tried a moment ago"
    monkeypatch.setattr(trails, "_AGAIN_SECONDS", 0.0)
    other = Paths(frozenset({f"{bench.real}/a third"}))
    with monkeypatch.context() as patch:
        patch.setattr(bench.watches, "limit", 0)
        assert not bench.trails.settled(other)
    assert [bench.trails.settled(other) for _ in range(2)] == [False, True]


def test_without_inotify_nothing_settles(tmp_path: Path) -> None:
    blind = Watches(enabled=False)
    one = Trails(blind)
    assert [one.settled(Paths(frozenset({str(tmp_path)}))) for _ in range(2)] == [False, False]
    blind.close()


def test_a_page_is_odd_while_events_are_read(watches: Watches) -> None:
    page = watches.page
    even = bytes(page._memory[:8])
    with page.reading():
        assert page._memory[0] & 1
    assert bytes(page._memory[:8]) == even
    page.changed()
    assert (
        int.from_bytes(page._memory[:8], "little")
        == 2 * page.count
        != int.from_bytes(even, "little")
    )


def test_where_a_command_is_looked_for() -> None:
    assert candidates(["c++", "/opt/cc"], "/a:/b") == {"/a/c++", "/b/c++", "/opt/cc"}

"""Header sets: every change is noticed, with and without inotify, and an unchanged set costs no
second look.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.headers import YEAR_2001, Include, entries, write
from warmcc.daemon.closure import header_sets
from warmcc.daemon.closure.header_watch import HeaderWatch
from warmcc.daemon.closure.marker import dated
from warmcc.daemon.toolchain.known_contents import KnownContents


def through_mapping(path: Path) -> None:
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[0:1] = b"#"
        mapped.flush()


def append(path: Path) -> None:
    with open(path, "a") as file:
        file.write("more")


def rename_over(root: Path) -> None:
    write(root / "new.h", "// a.h", YEAR_2001 + 1)
    os.replace(root / "new.h", root / "c++/a.h")


def swap_link(root: Path) -> None:
    (root / "next").symlink_to("cuda-13")
    os.replace(root / "next", root / "cuda")


def swap_folders(root: Path) -> None:
    os.rename(root / "torch", root / "torch-old")
    os.rename(root / "elsewhere", root / "torch")


def remade_folder(root: Path) -> None:
    for name in ("a.h", "b.h"):
        (root / "c++" / name).unlink()
    (root / "c++").rmdir()
    (root / "c++").mkdir()
    write(root / "c++/a.h", "// a.h")
    write(root / "c++/b.h", "// b.h", YEAR_2001 + 1)


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda root: (root / "c++/a.h").write_text("// other"),
    "appended": lambda root: append(root / "torch/a.h"),
    "truncated": lambda root: os.truncate(root / "c++/b.h", 1),
    "same size, other mtime": lambda root: write(root / "c++/a.h", "// x.h", YEAR_2001 + 1),
    "mtime alone": lambda root: os.utime(root / "torch/a.h", ns=(0, 0)),
    "renamed over": rename_over,
    "moved away": lambda root: os.rename(root / "c++/a.h", root / "a.h"),
    "deleted": lambda root: (root / "c++/b.h").unlink(),
    "folder moved away": lambda root: os.rename(root / "c++", root / "gone"),
    "folder made anew": remade_folder,
    "linked folder swapped": swap_link,
    "folder swapped": swap_folders,
    "link's target written": lambda root: write(root / "elsewhere/a.h", "// other"),
    "link set elsewhere": lambda root: [
        (root / "torch/link.h").unlink(),
        (root / "torch/link.h").symlink_to("a.h"),
    ],
    "written by its other name": lambda root: append(root / "elsewhere/b.h"),
    "written through a mapping": lambda root: through_mapping(root / "c++/a.h"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_every_change_is_noticed(
    include: Include, watch: HeaderWatch, change: Callable[[Path], object]
) -> None:
    assert watch.holds(include.set) and watch.holds(include.set)
    if change is CHANGES["link set elsewhere"]:
        write(include.root / "torch/a.h", "// longer")
        include.set = include.shelf.put(include.now())
        assert watch.holds(include.set)
    change(include.root)
    assert not watch.holds(include.set)
    assert not watch.holds(include.set)


@pytest.mark.parametrize("change", [*CHANGES.values(), lambda _: None], ids=[*CHANGES, "none"])
def test_what_is_known_without_a_look_is_what_is_there(
    include: Include, watch: HeaderWatch, change: Callable[[Path], object]
) -> None:
    """Also once it was looked at again. A folder with links is looked at every time."""
    wanted = {str(include.root / name): files for name, files in include.names.items()}
    assert watch.seen(wanted) == {}, "nothing was looked at yet"
    assert watch.holds(include.set)
    watched = watch.status()["watching"]
    assert len(watch.seen(wanted)) == (2 if watched else 0)
    change(include.root)
    for look_again in (False, True):
        if look_again:
            watch.holds(include.set)
        for path, (found, touched) in watch.seen(wanted).items():
            files = wanted[path]
            assert found == entries(Path(path), *files)
            assert touched >= max(dated(os.stat(f"{path}/{name}")) for name in files)


def test_of_what_is_known_a_part_may_be_asked_for(include: Include) -> None:
    watch = HeaderWatch(include.shelf.get)
    assert watch.holds(include.set)
    folder = str(include.root / "c++")
    assert watch.seen({folder: ["b.h"]})[folder].entries == entries(Path(folder), "b.h")
    assert watch.seen({folder: ["b.h", "c.h"], f"{folder}/none": ["a.h"]}) == {}
    watch.close()
    assert watch.seen({folder: ["b.h"]}) == {}


def test_what_is_known_is_looked_at_from_time_to_time(include: Include) -> None:
    watch = HeaderWatch(include.shelf.get, max_age=0.0)
    assert watch.holds(include.set)
    assert watch.seen({str(include.root / "c++"): ["b.h"]}) == {}
    watch.close()


@pytest.mark.parametrize("change", ["chmod", "another file", "same again", "moved and back"])
def test_what_changes_no_header_is_no_change(
    include: Include, watch: HeaderWatch, change: str
) -> None:
    assert watch.holds(include.set)
    folder = include.root / "c++"
    if change == "chmod":
        (folder / "a.h").chmod(0o600)
    elif change == "another file":
        write(folder / "c.h", "// new")
    elif change == "same again":
        write(folder / "a.h", "// a.h")
    else:
        os.rename(folder, include.root / "away")
        assert not watch.holds(include.set)
        os.rename(include.root / "away", folder)
    assert watch.holds(include.set)


def test_a_change_undone_holds_again(include: Include, watch: HeaderWatch) -> None:
    assert watch.holds(include.set)
    write(include.root / "c++/a.h", "// other")
    assert not watch.holds(include.set)
    write(include.root / "c++/a.h", "// a.h")
    assert watch.holds(include.set)


@pytest.fixture
def known(include: Include, monkeypatch: pytest.MonkeyPatch) -> KnownContents:
    """The contents of all headers of the set."""
    monkeypatch.setattr("warmcc.daemon.toolchain.known_contents._SETTLED_NS", -1)
    known = KnownContents()
    found = header_sets.decoded(include.shelf.get(include.set))
    assert found is not None
    for folder, headers in found.folders.items():
        for name, size, mtime_ns in headers:
            known.learn(f"{folder}/{name}", size, mtime_ns)
    return known


@pytest.mark.parametrize("watching", [True, False])
def test_headers_that_only_have_other_times_are_the_same(
    include: Include, known: KnownContents, watching: bool
) -> None:
    watch = HeaderWatch(include.shelf.get, known, watching=watching)
    for moment in (1, 2, YEAR_2001 + 7):
        for path in include.root.rglob("*.h"):
            os.utime(path, ns=(moment, moment))
        assert watch.holds(include.set)
    watch.close()


@pytest.mark.parametrize("change", [name for name in CHANGES if name != "mtime alone"])
def test_no_change_of_a_known_header_is_missed(
    include: Include, known: KnownContents, change: str
) -> None:
    watch = HeaderWatch(include.shelf.get, known)
    os.utime(include.root / "torch/a.h", ns=(1, 1))
    assert watch.holds(include.set)
    if change == "link set elsewhere":
        write(include.root / "torch/a.h", "// longer")
    CHANGES[change](include.root)
    contents_stayed = change in ("folder made anew", "renamed over")
    assert watch.holds(include.set) is contents_stayed
    watch.close()


def test_a_set_never_seen_or_damaged_does_not_hold(include: Include, watch: HeaderWatch) -> None:
    assert not watch.holds("0" * 64)
    assert watch.names("0" * 64) is None
    include.shelf["1" * 64] = b"\xc1"
    include.shelf["2" * 64] = (
        header_sets.encode([], {})[:1] + b"\x07" + header_sets.encode([], {})[2:]
    )  # another version
    assert not watch.holds("1" * 64)
    assert not watch.holds("2" * 64)


def test_verified_once_means_no_second_look(include: Include) -> None:
    watch = HeaderWatch(include.shelf.get)
    assert watch.holds(include.set)
    looked = watch.status()["sweeps"]
    assert looked == 3
    assert all(watch.holds(include.set) for _ in range(10))
    assert watch.status()["sweeps"] == looked
    write(include.root / "c++/unrelated.h", "")  # only the folder it is in is looked at again
    assert watch.holds(include.set)
    assert watch.status()["sweeps"] == looked + 1
    watch.close()
    assert watch.holds(include.set)


def test_sets_are_looked_at_again_after_a_while(include: Include) -> None:
    watch = HeaderWatch(include.shelf.get, max_age=0.0)
    assert watch.holds(include.set) and watch.holds(include.set)
    assert watch.status()["sweeps"] == 6
    watch.close()


def test_the_limit_of_watches_leaves_looking(include: Include) -> None:
    watch = HeaderWatch(include.shelf.get)
    watch._watches.limit = 1
    assert watch.holds(include.set)
    assert watch.status()["watches"] == 1
    assert watch.holds(include.set)
    for change in ("same size, other mtime", "link's target written", "linked folder swapped"):
        CHANGES[change](include.root)
        assert not watch.holds(include.set)
        include.set = include.shelf.put(include.now())
        assert watch.holds(include.set)
    watch.close()


def test_a_filesystem_that_others_may_write_is_not_trusted(include: Include) -> None:
    watch = HeaderWatch(include.shelf.get)
    kernel = Path("/sys/kernel")
    if not (kernel / "mm").exists():
        pytest.skip("no sysfs here")
    name = include.shelf.put({str(kernel): entries(kernel, "mm")})
    assert watch.holds(name) and watch.holds(name)
    assert watch.status()["sweeps"] == 2
    assert watch.status()["watches"] == 0
    watch.close()


def test_an_overflow_of_the_queue_hides_nothing(include: Include) -> None:
    events = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if events > 200_000:
        pytest.skip("the queue is too long to fill")
    watch = HeaderWatch(include.shelf.get)
    assert watch.holds(include.set)
    others = [include.root / "c++" / name for name in ("x", "y")]
    for path in others:
        path.touch()
    for count in range(events + 10):
        os.utime(others[count % 2])
    looked = watch.status()["sweeps"]
    write(include.root / "torch/a.h", "// x.h", YEAR_2001 + 1)  # this event is lost
    assert not watch.holds(include.set)
    write(include.root / "torch/a.h", "// a.h")
    assert watch.holds(include.set)
    assert watch.status()["sweeps"] >= looked + 3
    watch.close()


def test_memory_and_watches_are_bounded_and_folders_shared(include: Include) -> None:
    watch = HeaderWatch(include.shelf.get, limit=2)
    everything = include.now()
    folders = [str(include.root / name) for name in include.names]
    single = [include.shelf.put({folder: everything[folder]}) for folder in folders]
    assert watch.holds(include.set)
    looked, watches = watch.status()["sweeps"], watch.status()["watches"]
    assert watch.holds(single[0])
    assert (watch.status()["sweeps"], watch.status()["watches"]) == (
        looked,
        watches,
    )  # the same folder
    assert watch.holds(single[1]) and watch.holds(single[2])
    assert watch.status() | {"sweeps": 0} == {
        "watching": True,
        "sets": 2,
        "folders": 2,
        "watches": 3,
        "sweeps": 0,
    }
    write(include.root / "c++/a.h", "changed while it was forgotten")
    assert not watch.holds(single[0])
    watch.close()


def test_folders_that_were_moved_away_are_watched_no_longer(include: Include) -> None:
    watch = HeaderWatch(include.shelf.get)
    assert watch.holds(include.set)
    watches = watch.status()["watches"]
    for turn in range(5):
        os.rename(include.root / "c++", include.root / f"c++-{turn}")
        (include.root / "c++").mkdir()
        for name in ("a.h", "b.h"):
            write(include.root / "c++" / name, f"// {name}")
        assert watch.holds(include.set)
        assert watch.status()["watches"] == watches
    watch.close()

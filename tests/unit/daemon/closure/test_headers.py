"""Header sets: every change is noticed, with and without inotify, and an unchanged set costs no
second look.
"""

from __future__ import annotations

import mmap
import os
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from warmcc import digest
from warmcc.daemon.closure import header_sets
from warmcc.daemon.closure.header_sets import Entry, HeaderWatch

YEAR_2001 = 10**18


class Shelf(dict[str, bytes]):
    """Header sets by digest, as the store keeps them."""

    def put(self, folders: dict[str, list[Entry]], names: tuple[str, ...] = ()) -> str:
        payload = header_sets.encode(names, folders)
        name = digest.of_bytes(payload)
        self[name] = payload
        return name


def entries(folder: Path, *names: str) -> list[Entry]:
    states = {name: (folder / name).stat() for name in names}
    return [Entry(name, state.st_size, state.st_mtime_ns) for name, state in states.items()]


def write(path: Path, text: str, mtime_ns: int = YEAR_2001) -> None:
    path.write_text(text)
    os.utime(path, ns=(mtime_ns, mtime_ns))


class Include:
    """A toolchain in small: two plain folders, one behind a link, a linked file and a file with two
    names.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.shelf = Shelf()
        for name in ("c++", "torch", "cuda-12", "cuda-13", "elsewhere"):
            (root / name).mkdir()
            for file in ("a.h", "b.h"):
                write(root / name / file, f"// {file}")
        (root / "cuda").symlink_to("cuda-12")
        (root / "torch/link.h").symlink_to("../elsewhere/a.h")
        os.link(root / "elsewhere/b.h", root / "torch/shared.h")
        write(root / "cuda-13/a.h", "// another a.h", YEAR_2001 + 5)
        self.names = {
            "c++": ("a.h", "b.h"),
            "torch": ("a.h", "link.h", "shared.h"),
            "cuda": ("a.h", "b.h"),
        }
        self.set = self.shelf.put(self.now())

    def now(self) -> dict[str, list[Entry]]:
        return {
            str(self.root / name): entries(self.root / name, *files)
            for name, files in self.names.items()
        }

    def truth(self) -> bool:
        try:
            return self.shelf.put(self.now()) == self.set
        except OSError:
            return False


@pytest.fixture
def include(tmp_path: Path) -> Include:
    return Include(tmp_path)


@pytest.fixture(params=[True, False], ids=["watched", "unwatched"])
def watch(request: pytest.FixtureRequest, include: Include) -> Iterator[HeaderWatch]:
    made = HeaderWatch(include.shelf.get, watching=request.param)
    assert made.status()["watching"] is request.param
    yield made
    made.close()


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


@pytest.mark.parametrize("seed", range(3))
def test_many_random_changes(include: Include, watch: HeaderWatch, seed: int) -> None:
    """After each of many changes and repairs the answer is what looking at every file gives."""
    rng = random.Random(seed)
    root = include.root
    files = [
        root / "c++/a.h",
        root / "torch/a.h",
        root / "elsewhere/a.h",
        root / "elsewhere/b.h",
        root / "cuda-12/b.h",
    ]

    def replace(path: Path, mtime: int) -> None:
        write(root / "new", "// " + path.name, mtime)
        os.replace(root / "new", path)

    def swap(first: str, second: str) -> None:
        os.rename(root / first, root / "aside")
        os.rename(root / second, root / first)
        os.rename(root / "aside", root / second)

    def relink(target: str) -> None:
        (root / "next").symlink_to(target)
        os.replace(root / "next", root / "cuda")

    answers = set()
    for _ in range(300):
        path, mtime = rng.choice(files), YEAR_2001 + rng.choice((0, 0, 1))
        action = rng.randrange(8)
        if action < 3:
            write(path, "// " + path.name, mtime)
        elif action == 3:
            replace(path, mtime)
        elif action == 4:
            path.unlink(missing_ok=True)
        elif action == 5:
            swap("c++", rng.choice(["elsewhere", "cuda-13"]))
        elif action == 6:
            relink(rng.choice(["cuda-12", "cuda-13"]))
        else:  # as it was
            for file in files:
                write(file, "// " + file.name)
            relink("cuda-12")
        truth = include.truth()
        answers.add(truth)
        assert watch.holds(include.set) == truth
    assert answers == {True, False}


def test_from_many_threads(include: Include) -> None:
    """Whoever asks after a change was made hears of it, whichever thread read the event."""
    watch = HeaderWatch(include.shelf.get)
    stop = threading.Event()
    errors: list[str] = []
    target = include.root / "c++/a.h"

    def ask() -> None:
        while not stop.is_set():
            watch.holds(include.set)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for turn in range(200):
        os.utime(target, ns=(0, YEAR_2001 + 1 - turn % 2))
        if watch.holds(include.set) is not (turn % 2 == 1):
            errors.append(f"turn {turn}")
    stop.set()
    for thread in threads:
        thread.join()
    watch.close()
    assert errors == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=5),
        st.lists(st.tuples(st.text(max_size=5), st.integers(0, 2**40), st.integers(0, 2**62))),
    ),
    st.lists(st.text(max_size=5)),
    st.randoms(),
)
def test_equal_sets_have_equal_bytes(
    folders: dict[str, list[tuple[str, int, int]]], names: list[str], rng: random.Random
) -> None:
    given_once = {path: [Entry(*entry) for entry in found] for path, found in folders.items()}
    shuffled = {
        path: rng.sample(given_once[path], len(given_once[path]))
        for path in rng.sample(list(folders), len(folders))
    }
    assert header_sets.encode(names, given_once) == header_sets.encode(
        rng.sample(names, len(names)), shuffled
    )


def test_a_large_set_answers_in_a_fraction_of_a_millisecond(tmp_path: Path) -> None:
    shelf = Shelf()
    folders = {}
    for number in range(73):
        folder = tmp_path / f"include/torch/csrc/api/{number}"
        folder.mkdir(parents=True)
        for file in range(20):
            (folder / f"{file}.h").touch()
        folders[str(folder)] = entries(folder, *(f"{file}.h" for file in range(20)))
    name = shelf.put(folders)
    watch = HeaderWatch(shelf.get)
    times = []
    for _ in range(50):
        start = time.perf_counter()
        assert watch.holds(name)
        times.append(time.perf_counter() - start)
    watch.close()
    assert statistics.median(times) < 0.002  # 0.2 ms when nothing else runs

"""Header sets under random changes, from many threads, and large ones."""

from __future__ import annotations

import os
import random
import statistics
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.headers import YEAR_2001, Include, Shelf, entries, write
from warmcc.daemon.closure import header_sets
from warmcc.daemon.closure.header_sets import Entry
from warmcc.daemon.closure.header_watch import HeaderWatch


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

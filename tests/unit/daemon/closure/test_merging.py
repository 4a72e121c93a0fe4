"""One header set in place of many says what all of them said."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.support.closures import Project
from warmcc.daemon.closure import header_sets, merging
from warmcc.daemon.closure.closure import Closure
from warmcc.daemon.closure.header_sets import Entry
from warmcc.daemon.closure.header_watch import HeaderWatch
from warmcc.daemon.closure.shadowing import Guard

HEADERS = [f"toolchain/torch/ATen/ops/op{i}.h" for i in range(20)] + [
    f"toolchain/usr/std{i}" for i in range(5)
]


class Package(Project):
    """A project of a dozen units, each with headers of its own choice."""

    def __init__(self, root: Path, seed: int) -> None:
        super().__init__(root)
        rng = random.Random(seed)
        for name in HEADERS:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(f"// {name}")
        time.sleep(0.02)
        read = [
            self.read + [str(root / name) for name in rng.sample(HEADERS, 8)] for _ in range(12)
        ]
        self.units = [self.record(paths=rng.sample(paths, len(paths) - 2)) for paths in read]
        self.whole = Closure.union(self.units)
        self.one = merging.merged(self.whole, self.store.get_headers, self.store.put_headers)


Pack = Callable[[int], Package]


@pytest.fixture
def pack(tmp_path: Path) -> Iterator[Pack]:
    made: list[Package] = []

    def make(seed: int) -> Package:
        made.append(Package(tmp_path / str(seed), seed))
        return made[-1]

    yield make
    for package in made:
        package.watch.close()


def test_a_few_are_left_as_they_are(pack: Pack) -> None:
    package = pack(0)
    few = Closure.union(package.units[:3])
    assert merging.merged(few, package.store.get_headers, package.store.put_headers) is few


@pytest.mark.parametrize("seed", range(4))
def test_it_holds_just_when_all_units_do(pack: Pack, seed: int) -> None:
    """Random changes: headers written, gone, and new ones in folders that are searched first."""
    package = pack(seed)
    assert len(package.whole.header_sets) > merging.FEW
    assert len(package.one.headers) == 1
    assert len(package.one.guards) < merging.FEW
    assert package.one.files == package.whole.files
    rng, answers = random.Random(seed), set()
    tops = [
        "lib/used.h",
        "plain.h",
        "torch/extension.h",
        "ATen/ATen.h",
        "ATen/ops/op3.h",
        "vector",
        "std2",
        "x.h",
        "no",
    ]
    folders = ["first", "include", "src", "toolchain/torch", "last", "toolchain/usr"]
    for turn in range(150):
        names = [*HEADERS, *(f"{rng.choice(folders)}/{top}" for top in tops)]
        path = package.root / rng.choice(names)
        before = path.read_bytes() if path.exists() else None
        times = (path.stat().st_atime_ns, path.stat().st_mtime_ns) if before is not None else None
        made = next(
            (place for place in reversed([path, *path.parents]) if not place.exists()), None
        )
        if before is not None and rng.random() < 0.5:
            path.unlink()
        else:
            with contextlib.suppress(FileExistsError, NotADirectoryError):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"// {turn}")
        expected = all(package.closures.holds(unit) for unit in package.units)
        assert (
            package.closures.holds(package.one) == package.closures.holds(package.whole) == expected
        ), path
        answers.add(expected)
        if before is not None and times is not None:
            path.write_bytes(before)
            os.utime(path, ns=times)
        elif made is not None:
            shutil.rmtree(made) if made.is_dir() else made.unlink(missing_ok=True)
        assert package.closures.holds(package.one), path
    assert answers == {True, False}


def test_what_does_not_fit_together_stays_apart(pack: Pack) -> None:
    package = pack(1)
    get, put = package.store.get_headers, package.store.put_headers
    entry = Entry("op0.h", 1, 2)
    changed = (
        put(header_sets.encode([], {"/t": [entry]})),
        put(header_sets.encode([], {"/t": [entry._replace(size=2)]})),
    )
    missing = put(header_sets.encode([], {}, {"/t": ["op0.h"]}))
    for pair in (changed, (changed[0], missing)):
        closure = msgspec.structs.replace(
            package.whole, headers=sorted({*package.whole.headers, *pair})
        )
        assert merging.merged(closure, get, put) is closure
    found, lost = Guard({"/f": ["a.h"]}, ["a.h"]), Guard({"/f": []}, ["a.h"])
    for guards in ([found, lost], [lost, found]):
        closure = msgspec.structs.replace(package.whole, guards=guards)
        assert merging.merged(closure, get, put) is closure
    gone = msgspec.structs.replace(package.whole, headers=[*package.whole.headers, "0" * 64])
    assert merging.merged(gone, get, put) is gone


def test_many_packages_stay_in_memory(pack: Pack) -> None:
    """Each of ten packages has a dozen sets, and sixty-four fit into memory: none is looked at a
    second time.
    """
    packages = [pack(seed) for seed in range(10)]
    watch = HeaderWatch(
        lambda name: next(filter(None, (p.store.get_headers(name) for p in packages)), None)
    )
    for _ in range(2):
        assert all(watch.holds(name) for package in packages for name in package.one.headers)
        swept = watch.status()["sweeps"]
    for package in packages:
        assert all(watch.holds(name) for name in package.one.headers)
    assert watch.status()["sweeps"] == swept
    watch.close()

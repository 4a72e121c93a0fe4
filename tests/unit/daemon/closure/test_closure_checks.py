"""What breaks a closure, and in which words; and what of it can be watched."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec
import pytest

from tests.support.places import Place
from tests.support.shelf import Bench
from warmcc import digest
from warmcc.daemon.closure import closure as closures
from warmcc.daemon.closure.closure import ChangedDuringBuild, Closure, Closures
from warmcc.daemon.closure.header_watch import HeaderWatch
from warmcc.daemon.closure.shadowing import Guard
from warmcc.daemon.system.trails import Paths
from warmcc.daemon.toolchain.known_contents import KnownContents


@pytest.fixture
def place(bench: Bench) -> Place:
    return Place(bench)


@pytest.fixture
def watched(place: Place) -> Iterator[Closures]:
    """Closures with watches, where there is inotify."""
    watch = HeaderWatch(place.store.get_headers)
    if not watch.status()["watching"]:
        pytest.fail("this machine has no inotify, which the test needs")
    yield Closures(place.store, watch)
    watch.close()


# ---------------------------------------------------------------------- what breaks it


def test_what_broke_a_closure_is_said(place: Place) -> None:
    source, header = place.path("src/a.cpp"), place.path("own/a.h")
    found = place.record("src/a.cpp", "own/a.h", "theirs/deep/b.h", absent=[place.path("z")])
    broken = place.closures.broken
    assert broken(found) is None and place.closures.holds(found)
    place.write("src/a.cpp", "int b;")
    assert broken(found) == f"{source} has changed" and not place.closures.holds(found)
    place.write("src/a.cpp", "int a;")
    os.rename(header, place.path("kept"))
    for make in (os.mkdir, os.mkfifo):
        assert broken(found) == f"{header} is gone"
        make(header)
        assert broken(found) == f"{header} is gone"
        (os.rmdir if make is os.mkdir else os.unlink)(header)
    os.symlink(place.path("kept"), header)
    assert broken(found) is None  # a user's file is its content
    os.symlink("nowhere", place.path("z"))
    assert broken(found) == f"{place.path('z')} has appeared, which is searched first"
    os.unlink(place.path("z"))
    place.write("theirs/deep/b.h", "other")
    assert broken(found) == "a header of the toolchain or of torch has changed"
    place.write("theirs/deep/b.h", "// of the toolchain")
    place.write("first/deep")
    assert broken(found) == "a header has appeared in a folder that is searched first"
    os.unlink(place.path("first/deep"))
    assert broken(found) is None


def test_each_part_of_a_closure_is_looked_at(place: Place) -> None:
    """The last of several as well as the first."""
    good, folder = place.record("src/a.cpp", "theirs/deep/b.h"), place.path("first")
    other = Guard({folder: []}, ["other.h"])
    for broken in (
        Closure(files={**good.files, place.path("none"): "0" * 64}),
        Closure(absent=[place.path("none"), place.path("own")]),
        Closure(headers=[*good.headers, "0" * 64]),
        Closure(guards=[*good.guards, other]),
        Closure(guards=[other, *good.guards]),
        Closure(guards=[Guard({place.path("src"): []}, ["none"], "0" * 64)]),
        Closure(guards=[Guard({folder: []}, ["none"]), Guard({folder: ["none"]}, ["other.h"])]),
    ):
        assert not place.closures.holds(broken), broken
    assert place.closures.holds(Closure(guards=[Guard({folder: ["other.h"]}, ["other.h"])]))


def test_a_guard_without_a_header_set_guards_its_own_names(place: Place) -> None:
    guarded = Closure(guards=[Guard({place.path("first"): []}, ["new.h"])])
    assert guarded.header_sets == set()
    assert place.closures.holds(guarded)
    place.write("first/new.h")
    assert not place.closures.holds(guarded)


def test_all_header_sets_of_a_closure(place: Place) -> None:
    folder = {place.path("first"): list[str]()}
    found = Closure(headers=["b", "a"], guards=[Guard(folder, ["x"]), Guard(folder, [], "c")])
    assert found.header_sets == {"a", "b", "c"}


def test_the_union_of_closures(place: Place) -> None:
    guards = [Guard({f"/{number}": []}, ["x"]) for number in range(3)]
    one = Closure({"/a": "1", "/b": "2"}, ["s", "q"], ["/z", "/x"], guards[:2])
    other = Closure({"/b": "2", "/c": "3"}, ["r", "s"], ["/y", "/z"], guards[1:])
    assert Closure.union([one, other]) == Closure(
        {"/a": "1", "/b": "2", "/c": "3"}, ["q", "r", "s"], ["/x", "/y", "/z"], guards
    )
    assert Closure.union([]) == Closure()
    with pytest.raises(ChangedDuringBuild) as raised:
        Closure.union([one, other, Closure({"/c": "4"})])
    assert (raised.value.path, str(raised.value)) == ("/c", "/c changed during the build")


def test_an_empty_closure_takes_no_room() -> None:
    assert msgspec.msgpack.encode(Closure()) == b"\x80"
    assert Closure().files == {} and Closure().guards == []
    assert digest.of_value(Closure()) == digest.of_value({})


# ---------------------------------------------------------------------- what is steady


def test_headers_are_steady_and_sources_are_not(place: Place, watched: Closures) -> None:
    names = [f"own/{number}{suffix}" for number, suffix in enumerate(closures._HEADERS)]
    for name in (*names, "own/data.txt"):
        place.write(name)
    found = place.record("src/a.cpp", "own/data.txt", *names)
    toolchain = Paths(frozenset({place.path("theirs/deep/b.h")}))
    assert watched.holds(found)
    assert watched.steady(found, toolchain) is None  # it is watched from now on
    assert watched.steady(found, toolchain) == {place.path(name) for name in names}
    assert set(closures._HEADERS) == {".h", ".hh", ".hpp", ".hxx", ".cuh", ".inc", ".inl"}


@pytest.mark.parametrize(
    "change", ["toolchain", "absent", "guarded folder", "header set", "header", "nothing"]
)
def test_what_is_steady_no_more(change: str, place: Place, watched: Closures) -> None:
    program = place.write("bin/g++")
    found = place.record("own/a.h", "theirs/deep/b.h", absent=[place.path("own/z")])
    toolchain = Paths(frozenset({program}))
    assert watched.holds(found)
    watched.steady(found, toolchain)
    assert watched.steady(found, toolchain) == {place.path("own/a.h")}
    if change != "nothing":
        place.write(
            {
                "toolchain": "bin/g++", "absent": "own/z", "guarded folder": "first/new",
                "header set": "theirs/deep/b.h", "header": "own/a.h",
            }[change],
            "new",
        )  # fmt: skip
    steady = watched.steady(found, toolchain)
    assert steady == ({place.path("own/a.h")} if change == "nothing" else None)


def test_a_header_whose_watch_has_just_begun_is_not_steady(place: Place, watched: Closures) -> None:
    """It may have changed since it was read; from the next time on it is."""
    nothing, one = Paths(frozenset()), Closure(files={place.path("own/a.h"): "0" * 64})
    watched.steady(Closure(), nothing)
    assert watched.steady(Closure(), nothing) == frozenset()
    assert watched.steady(one, nothing) == frozenset()
    assert watched.steady(one, nothing) == {place.path("own/a.h")}
    place.write("own/a.h", "new")
    assert watched.steady(one, nothing) != {place.path("own/a.h")}


def test_without_headers_nothing_else_need_be_watched(place: Place, watched: Closures) -> None:
    found = place.record("src/a.cpp", include_dirs=[])
    nothing = Paths(frozenset())
    assert watched.steady(found, nothing) is None
    assert watched.steady(found, nothing) == frozenset()


def test_clients_see_what_the_watches_see(watched: Closures, place: Place) -> None:
    assert watched.page.descriptor in watched.descriptors
    assert len(watched.descriptors) == 2
    assert place.closures.descriptors == []


def test_what_was_learnt_of_headers_outlives_their_times(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a layer of an image, read a few at a time."""
    monkeypatch.setattr("warmcc.daemon.toolchain.known_contents._SETTLED_NS", -1)
    place.write("theirs/deep/c.h")
    names = ("theirs/deep/b.h", "theirs/deep/c.h")
    watch = HeaderWatch(place.store.get_headers, KnownContents())
    place.closures = made = Closures(place.store, watch)
    found = place.record("src/a.cpp", *names)
    made.learn(1)
    made.learn(0)
    for name in names:
        os.utime(place.path(name), ns=(1, 1))
    assert not made.holds(found), "one of them was not read"
    made.learn()
    assert not made.holds(found), "it is another one now"
    os.utime(place.path(names[0]), ns=(10**18, 10**18))
    os.utime(place.path(names[1]), ns=(10**18, 10**18))
    assert made.holds(found)
    place.record(*names)
    made.learn()
    for name in names:
        os.utime(place.path(name), ns=(1, 1))
    assert made.holds(found)
    place.write("theirs/deep/c.h", " ")
    assert not made.holds(found)
    watch.close()

"""What the closure of a build holds, and of which builds there is none: each rule alone."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from tests.support.places import Place
from tests.support.shelf import Bench, key
from warmcc.daemon.closure import header_sets
from warmcc.daemon.closure.closure import ChangedDuringBuild, Closure
from warmcc.daemon.closure.marker import Marker, dated
from warmcc.daemon.closure.seen import Seen
from warmcc.daemon.closure.shadowing import Guard


@pytest.fixture
def place(bench: Bench) -> Place:
    return Place(bench)


# ---------------------------------------------------------------------- what is recorded


def test_a_closure_holds_just_what_was_read(place: Place) -> None:
    found = place.record("src/a.cpp", "own/a.h", "theirs/deep/b.h", "own/a.h")
    assert found.files == {
        place.path("src/a.cpp"): key("int a;"),
        place.path("own/a.h"): key("// of the user"),
    }
    assert list(found.files) == [place.path("src/a.cpp"), place.path("own/a.h")]
    entry = ("b.h", len("// of the toolchain"), 10**18)
    of_set = place.headers_of(found)
    assert of_set.folders == {place.path("theirs/deep"): [entry]}
    assert of_set.names == ["deep"]
    assert of_set.absent == {}
    assert found.absent == []
    folders = {place.path("src"): [], place.path("own"): ["a.h"], place.path("first"): []}
    assert found.guards == [Guard(folders, ["a.h"], found.headers[0])]


def test_of_the_toolchain_alone_nothing_is_the_users(place: Place) -> None:
    found = place.record("theirs/deep/b.h", include_dirs=[place.path("theirs")])
    assert (found.files, found.absent, found.guards) == ({}, [], [])
    assert len(found.headers) == 1


def test_of_the_user_alone_there_is_no_header_set(place: Place) -> None:
    found = place.record("own/a.h", include_dirs=[])
    assert found.headers == []
    assert found.header_sets == set()
    assert all(guard.headers == "" for guard in found.guards)
    assert not list((place.store.root / "headers").rglob("*"))


def test_what_was_looked_for_is_absent_if_it_is_not_there(place: Place) -> None:
    asked = [place.path(name) for name in ("own/z.h", "own/a.h", "first/y.h")]
    found = place.record("src/a.cpp", include_dirs=[], absent=asked)
    assert found.absent == [place.path("first/y.h"), place.path("own/z.h")]


def test_a_dangling_link_is_there(place: Place) -> None:
    os.symlink("nowhere", place.path("own/z.h"))
    found = place.record("src/a.cpp", include_dirs=[], absent=[place.path("own/z.h")])
    assert found.absent == []


def test_what_is_missing_of_the_toolchain_is_in_the_header_set(place: Place) -> None:
    asked = [place.path(name) for name in ("theirs/x.so", "theirs/deep/no/such/y.h", "own/z.h")]
    found = place.record("src/a.cpp", include_dirs=[], absent=asked)
    assert found.absent == [place.path("own/z.h")]
    of_set = place.headers_of(found)
    assert of_set.folders == {}
    assert of_set.absent == {place.path("theirs"): ["x.so"], place.path("theirs/deep"): ["no"]}


def test_relative_paths_are_of_the_folder_where_the_compiler_ran(place: Place) -> None:
    found = place.closures.record(
        ["a.cpp", "../theirs/deep/b.h"],
        [place.path("theirs")],
        ["../first"],
        place.later(),
        cwd=place.path("src"),
        absent=["z.h"],
        texts=["#if __has_include(<y.h>)"],
    )
    assert list(found.files) == [place.path("src/a.cpp")]
    assert list(place.headers_of(found).folders) == [place.path("src/../theirs/deep")]
    missing = [place.path(name) for name in ("src/../first/y.h", "src/y.h", "src/z.h")]
    assert found.absent == missing


def test_without_a_folder_relative_paths_are_of_the_root(place: Place) -> None:
    relative = place.path("own/a.h").removeprefix("/")
    found = place.closures.record([relative], [], [], place.later())
    assert list(found.files) == [f"/{relative}"]


@pytest.mark.parametrize("form", ["{}", "{}/", "{}//"])
def test_what_lies_under_ignored_folders_is_left_out(form: str, place: Place) -> None:
    place.write("ownership/c.h")
    found = place.record(
        "src/a.cpp", "own/a.h", "ownership/c.h", ignore=[form.format(place.path("own"))]
    )
    assert list(found.files) == [place.path("src/a.cpp"), place.path("ownership/c.h")]
    assert all(place.path("own") not in guard.folders for guard in found.guards)


def test_what_lies_in_the_store_is_left_out(place: Place) -> None:
    tree = place.store.staging()
    (tree / "main.cpp").write_text("int a;")
    found = place.closures.record([str(tree / "main.cpp")], [], [], place.later())
    assert found == Closure()


@pytest.mark.parametrize("form", ["{}", "{}/"])
def test_a_root_is_the_folder_and_what_lies_under_it(form: str, place: Place) -> None:
    place.write("theirs/c.h")
    place.write("theirs-not/c.h")
    found = place.record(
        "theirs/c.h", "theirs-not/c.h", "theirs/deep/b.h", roots=[form.format(place.path("theirs"))]
    )
    assert list(found.files) == [place.path("theirs-not/c.h")]
    assert set(place.headers_of(found).folders) == {place.path("theirs"), place.path("theirs/deep")}


def test_a_root_may_be_reached_by_other_ways(place: Place) -> None:
    os.symlink("theirs", place.path("link"))
    for way in ("link/deep/b.h", "own/../theirs/deep/b.h"):
        assert place.record(way).files == {}
    assert list(place.record("theirs/../own/a.h").files) == [place.path("theirs/../own/a.h")]
    os.symlink(
        "../own", place.path("theirs/mine")
    )  # where it leads is not all: by name it is theirs
    assert place.record("theirs/mine/a.h").files == {}


def test_everything_may_be_the_toolchains(place: Place) -> None:
    assert place.record("src/a.cpp", roots=["/"]).files == {}


# ---------------------------------------------------------------------- what was asked for


def test_headers_that_a_text_asks_for(place: Place) -> None:
    text = "#if __has_include(<a.h>) || __has_include(<z.h>)\n#endif \udcff"
    found = place.record("src/a.cpp", texts=[text])
    assert set(found.files) == {place.path("src/a.cpp"), place.path("own/a.h")}
    missing = ("first/a.h", "first/z.h", "own/z.h", "src/a.h", "src/z.h")
    assert found.absent == [place.path(name) for name in missing]
    assert place.headers_of(found).absent == {place.path("theirs"): ["a.h", "z.h"]}


def test_headers_that_a_header_of_the_toolchain_asks_for(place: Place) -> None:
    place.write("theirs/c.h", "#if __has_include(<a.h>) || __has_include(<more/z.h>)\n#endif\n")
    found = place.record("src/a.cpp", "theirs/c.h")
    assert set(found.files) == {place.path("src/a.cpp"), place.path("own/a.h")}
    assert found.absent == [
        place.path("first/a.h"),
        *(f"{place.root}/{name}/more/z.h" for name in ("first", "own")),
    ]
    of_set = place.headers_of(found)
    assert of_set.names == ["a.h", "c.h", "more"]
    assert of_set.absent == {place.path("theirs"): ["a.h", "more"]}


def test_headers_that_several_headers_of_the_toolchain_ask_for(place: Place) -> None:
    place.write("theirs/c.h", "#if __has_include(<y.h>)\n#endif\n")
    place.write("theirs/d.h", "#if __has_include(<z.h>)\n#endif\n")
    found = place.record("theirs/c.h", "theirs/d.h", "theirs/deep/b.h")
    names = ("first/y.h", "first/z.h", "own/y.h", "own/z.h")
    assert found.absent == [place.path(name) for name in names]


@pytest.mark.parametrize("also", ["size", "date"])
def test_a_header_of_the_toolchain_that_has_changed_asks_anew(also: str, place: Place) -> None:
    """Its size alone, or its date alone, is enough."""
    place.write("theirs/c.h", "#if __has_include(<y.h>)\n#endif\n")
    assert place.path("own/y.h") in place.record("theirs/c.h").absent
    name = "longer.h" if also == "size" else "z.h"
    path = place.write("theirs/c.h", f"#if __has_include(<{name}>)\n#endif\n")
    if also == "date":
        os.utime(path, ns=(10**18 + 1, 10**18 + 1))
    assert place.path(f"own/{name}") in place.record("theirs/c.h").absent


def test_headers_that_several_files_of_the_user_ask_for(place: Place) -> None:
    place.write("src/a.cpp", "#if __has_include(<y.h>)\n#endif\n")
    place.write("own/c.h", "#if __has_include(<z.h>)\n#endif\n")
    found = place.record("src/a.cpp", "own/c.h", "own/a.h", include_dirs=[place.path("own")])
    names = ("own/y.h", "own/z.h", "src/y.h", "src/z.h")
    assert found.absent == [place.path(name) for name in names]


def test_a_linker_asks_for_nothing(place: Place) -> None:
    place.write("own/c.h", "#if __has_include(<z.h>)\n#endif\n")
    found = place.record("own/c.h", include_dirs=[], texts=["#if __has_include(<y.h>)"])
    assert found.absent == []


def test_a_name_asked_for_that_is_no_file(place: Place) -> None:
    os.mkfifo(place.path("own/pipe.h"))
    with pytest.raises(ChangedDuringBuild) as raised:
        place.record("src/a.cpp", texts=["#if __has_include(<pipe.h>)"])
    assert raised.value.path == place.path("own/pipe.h")
    assert str(raised.value) == (
        f"{place.path('own/pipe.h')} cannot be looked at (not a regular file)"
    )


def test_a_folder_that_cannot_be_listed(place: Place) -> None:
    os.symlink("loop", place.path("loop"))
    with pytest.raises(ChangedDuringBuild) as raised:
        place.record("own/a.h", include_dirs=[place.path("loop"), place.path("own")])
    assert raised.value.path == place.path("loop")
    assert str(raised.value) == (
        f"{place.path('loop')} cannot be looked at (Too many levels of symbolic links)"
    )


# ---------------------------------------------------------------------- what changed meanwhile


def at_once(path: str) -> Marker:
    """A build that began in the very moment in which a file was dated."""
    started = Marker.take(os.path.dirname(path))
    return msgspec.structs.replace(started, ns=dated(os.lstat(path)))


@pytest.mark.parametrize("name", ["src/a.cpp", "theirs/deep/b.h"])
def test_a_file_as_old_as_the_build_may_have_changed_during_it(name: str, place: Place) -> None:
    started = at_once(place.path(name))
    later = msgspec.structs.replace(started, ns=started.ns + 1)
    with pytest.raises(ChangedDuringBuild) as raised:
        place.record(name, started=started, include_dirs=[])
    assert raised.value.path == place.path(name)
    assert str(raised.value) == f"{place.path(name)} changed during the build"
    assert place.record(name, started=later, include_dirs=[])


def test_a_source_that_is_another_one_now_changed_whatever_its_date(place: Place) -> None:
    """A server's clock that is behind dates it before the build."""
    path = place.path("src/a.cpp")
    started = Marker.take(place.store.root / "staging", [path])
    started = msgspec.structs.replace(started, ns=started.ns + 10**12)
    assert place.record("src/a.cpp", started=started)
    place.write("src/a.cpp", "int other;")
    with pytest.raises(ChangedDuringBuild) as raised:
        place.record("src/a.cpp", started=started)
    assert raised.value.path == path


@pytest.mark.parametrize("name", ["link/a.h", "up/link/a.h", "link/deep/b.h", "up/link/deep/b.h"])
def test_a_link_on_the_way_as_old_as_the_build_may_have_been_set_during_it(
    name: str, place: Place
) -> None:
    (place.root / "up").mkdir()
    link = place.path(name.partition("link")[0] + "link")
    target = place.path("theirs" if "deep" in name else "own")
    os.symlink(target, link)
    started = at_once(link)
    with pytest.raises(ChangedDuringBuild) as raised:
        place.record(name, started=started, include_dirs=[])
    assert raised.value.path == link
    later = msgspec.structs.replace(started, ns=started.ns + 1)
    assert place.record(name, started=later, include_dirs=[])


@pytest.mark.parametrize("which", ["link", "target"])
def test_a_header_of_the_toolchain_that_is_a_link_counts_with_its_target(
    which: str, place: Place
) -> None:
    target = place.write("theirs/target.h", "int b;")
    link = place.path("theirs/link.h")
    os.symlink("target.h", link)
    os.utime(link, ns=(1, 1), follow_symlinks=False)
    found = place.record("theirs/link.h", include_dirs=[])
    assert place.headers_of(found).folders == {place.path("theirs"): [("link.h", 6, 10**18)]}
    started = place.later()
    if which == "target":
        os.utime(target, ns=(started.ns, started.ns))
    else:
        os.utime(link, ns=(started.ns, started.ns), follow_symlinks=False)
    with pytest.raises(ChangedDuringBuild) as raised:
        place.record("theirs/link.h", started=started, include_dirs=[])
    assert raised.value.path == link


@pytest.mark.parametrize("name", ["src/gone.cpp", "theirs/gone.h", "theirs/gone/b.h"])
def test_a_file_that_is_gone_has_changed(name: str, place: Place) -> None:
    with pytest.raises(ChangedDuringBuild) as raised:
        place.record(name, include_dirs=[])
    gone = "theirs/gone" if name == "theirs/gone/b.h" else name
    assert raised.value.path == place.path(gone)


@pytest.mark.parametrize("folder", ["src", "theirs"])
def test_what_is_no_file_is_not_described(folder: str, place: Place) -> None:
    os.mkfifo(place.path(f"{folder}/pipe"))
    with pytest.raises(ChangedDuringBuild) as raised:
        place.record(f"{folder}/pipe", include_dirs=[])
    path = place.path(f"{folder}/pipe")
    assert (raised.value.path, str(raised.value)) == (path, f"{path} is not a regular file")


def test_a_name_that_is_no_text_is_not_described(place: Place) -> None:
    path = os.fsdecode(os.fsencode(place.path("own/")) + b"\xff.h")
    Path(path).touch()
    said = f"{path!r} has a name that is not UTF-8, which msgpack cannot hold"
    with pytest.raises(ChangedDuringBuild) as raised:
        place.closures.record([path], [], [], place.later())
    assert (raised.value.path, str(raised.value)) == (repr(path), said)
    ignored = place.closures.record([path], [], [], place.later(), ignore=[place.path("own")])
    assert ignored == Closure()


def test_a_clock_that_was_set(place: Place) -> None:
    started = place.later()
    moved = msgspec.structs.replace(started, offset=started.offset + 10**9)
    with pytest.raises(ChangedDuringBuild) as raised:
        place.record("src/a.cpp", started=moved)
    assert str(raised.value) == "the clock was set during the build"


def test_what_was_looked_at_for_another_unit_is_not_looked_at_again(place: Place) -> None:
    seen = Seen()
    first = place.record("theirs/deep/b.h", seen=seen)
    (known,) = seen.entries
    assert known == (place.path("theirs/deep"), ("b.h",))
    seen.entries[known] = [header_sets.Entry("b.h", 1, 2)]
    of_set = place.headers_of(place.record("theirs/deep/b.h", seen=seen))
    assert of_set.folders == {place.path("theirs/deep"): [("b.h", 1, 2)]}
    place.write("theirs/deep/c.h")
    more = place.headers_of(place.record("theirs/deep/b.h", "theirs/deep/c.h", seen=seen))
    assert [entry[0] for entry in more.folders[place.path("theirs/deep")]] == ["b.h", "c.h"]
    assert place.record("theirs/deep/b.h") == first

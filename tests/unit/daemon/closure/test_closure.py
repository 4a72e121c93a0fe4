"""Closures: recorded only when nothing changed during the build, and holding only while a build
would read the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec
import pytest

from tests.support.closures import Project, let_the_clock_tick, swap_link
from warmcc.daemon.closure.closure import ChangedDuringBuild, Closure
from warmcc.daemon.closure.seen import Seen
from warmcc.daemon.system.trails import Paths


def test_users_by_content_and_toolchain_by_set(project: Project) -> None:
    closure = project.record()
    assert list(closure.files) == project.read[:5]
    assert len(closure.headers) == 1
    assert project.closures.holds(closure)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(closure), type=Closure) == closure
    assert project.record().headers == closure.headers  # one set, one digest
    os.utime(project.root / "src/own.h")  # the user's files are what they contain
    assert project.closures.holds(closure)


def rename_over(project: Project) -> None:
    project.write("new.h")
    os.replace(project.root / "new.h", project.root / "toolchain/usr/vector")


CHANGES: dict[str, Callable[[Project], object]] = {
    "source": lambda project: project.write("src/ext.cpp"),
    "own header": lambda project: project.write("src/own.h"),
    "same size": lambda project: project.write("src/own.h", "// src/OWN.h"),
    "found header": lambda project: project.write("include/lib/used.h"),
    "header deleted": lambda project: (project.root / "include/plain.h").unlink(),
    "header a folder": lambda project: [
        (project.root / "include/plain.h").unlink(),
        (project.root / "include/plain.h").mkdir(),
    ],
    "header a pipe": lambda project: [
        (project.root / "include/plain.h").unlink(),
        os.mkfifo(project.root / "include/plain.h"),
    ],
    "toolchain header": lambda project: project.write("toolchain/torch/ATen/ATen.h"),
    "toolchain mtime": lambda project: os.utime(project.root / "toolchain/usr/vector", ns=(1, 1)),
    "toolchain header renamed over": rename_over,
    "toolchain header deleted": lambda project: (project.root / "toolchain/usr/vector").unlink(),
    "shadow in an earlier folder": lambda project: project.write("first/plain.h"),
    "deep shadow in an earlier folder": lambda project: project.write("first/lib/used.h"),
    "deeper shadow in an earlier folder": lambda project: project.write("first/lib/deep/far.h"),
    "shadow beside the source": lambda project: project.write("src/plain.h"),
    "deep shadow beside the source": lambda project: project.write("src/lib/used.h"),
    "dangling link as shadow": lambda project: (project.root / "first/plain.h").symlink_to(
        "nowhere"
    ),
    "shadow of a toolchain header": lambda project: project.write("first/torch/extension.h"),
    "its folder as shadow": lambda project: project.write("include/ATen/Other.h"),
    "shadow of a standard header": lambda project: project.write("last/vector"),
    "toolchain's shadow beside the source": lambda project: project.write("src/vector"),
    "shadow in an earlier folder of the toolchain": lambda project: project.write(
        "toolchain/torch/vector"
    ),
    "a header asked for": lambda project: project.write("last/asked/for.h"),
    "a header asked for, in the toolchain": lambda project: project.write(
        "toolchain/usr/asked/for.h"
    ),
    "a header asked for through a macro": lambda project: project.write("first/through.h"),
    "a header that the toolchain asks for": lambda project: project.write("include/theirs.h"),
    "a header that the toolchain asks for, in it": lambda project: project.write(
        "toolchain/torch/theirs.h"
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_every_change_is_noticed(project: Project, change: Callable[[Project], object]) -> None:
    closure = project.record()
    assert project.closures.holds(closure) and project.closures.holds(closure)
    change(project)
    assert not project.closures.holds(closure)


def test_a_swapped_folder_of_the_user_is_noticed(project: Project) -> None:
    root = project.root
    os.rename(root / "include", root / "include-1")
    (root / "include").symlink_to("include-1")
    project.write("include-2/lib/used.h", "// other")
    project.write("include-2/lib/deep/far.h", "// include/lib/deep/far.h")
    project.write("include-2/plain.h", "// include/plain.h")
    let_the_clock_tick()
    closure = project.record()
    assert project.closures.holds(closure)
    swap_link(project)
    assert not project.closures.holds(closure)


def test_a_header_asked_for_that_was_there_must_stay(project: Project) -> None:
    project.write("src/own.h", "#if __has_include(<x.h>)\n#endif")
    let_the_clock_tick()
    closure = project.record()
    assert str(project.root / "last/x.h") in closure.files
    (project.root / "last/x.h").unlink()
    assert not project.closures.holds(closure)


@pytest.mark.parametrize(
    "place", ["first/libx.so", "last/libx.a", "toolchain/usr/libx.so", "toolchain/new/libx.so"]
)
def test_what_was_looked_for_in_vain_must_not_appear(project: Project, place: str) -> None:
    candidates = [
        str(project.root / name)
        for name in ("first/libx.so", "last/libx.a", "toolchain/usr/libx.so")
    ]
    candidates.append(str(project.root / "toolchain/new/libx.so"))  # nor its folder
    roots = [str(project.root / "toolchain")]
    closure = project.closures.record(project.read, roots, [], project.mark(), absent=candidates)
    assert project.closures.holds(closure)
    project.write("toolchain/usr/another")
    assert project.closures.holds(closure)
    project.write(place)
    assert not project.closures.holds(closure)


def test_a_result_of_a_build_during_which_the_clock_was_set_is_not_recorded(
    project: Project,
) -> None:
    started = project.mark()
    for seconds in (-3600, 3600):
        other = msgspec.structs.replace(started, offset=started.offset - seconds * 10**9)
        with pytest.raises(ChangedDuringBuild, match="the clock was set"):
            project.record(other)
    project.record(started)


def test_what_shadows_nothing_is_no_change(project: Project) -> None:
    closure = project.record()
    for name in (
        "first/unrelated.h",
        "src/unrelated.h",
        "include/another.h",
        "first/lib/another.h",
        "toolchain/x.h",
    ):
        project.write(name)
    assert project.closures.holds(closure)


def test_after_a_shadow_appeared_the_next_result_holds(project: Project) -> None:
    """A name that is there already when the result is made is no reason to distrust it, only deeper
    ones are.
    """
    project.write("src/vector")
    project.write("first/torch/other.h")
    let_the_clock_tick()
    closure = project.record()
    assert project.closures.holds(closure)
    assert str(project.root / "first/torch/extension.h") in closure.absent
    project.write("first/torch/another.h")
    assert project.closures.holds(closure)
    project.write("first/torch/extension.h")
    assert not project.closures.holds(closure)


def test_an_include_directory_that_appears(project: Project) -> None:
    project.searched.insert(0, str(project.root / "optional"))
    closure = project.record()
    assert project.closures.holds(closure)
    (project.root / "optional").mkdir()
    assert project.closures.holds(closure)
    project.write("optional/plain.h")
    assert not project.closures.holds(closure)


def test_relative_paths_and_roots_behind_links(project: Project) -> None:
    (project.root / "alias").symlink_to("toolchain")
    let_the_clock_tick()
    closure = project.closures.record(
        [
            "ext.cpp",
            "../include/plain.h",
            "../toolchain/usr/vector",
            str(project.root / "alias/torch/ATen/ATen.h"),
        ],
        [str(project.root / "alias")],
        ["../first", "../include", "../toolchain/usr"],
        project.mark(),
        cwd=str(project.root / "src"),
    )
    assert list(closure.files) == [
        str(project.root / "src/ext.cpp"),
        str(project.root / "src/../include/plain.h"),
    ]
    assert project.closures.holds(closure)
    project.write("first/plain.h")
    assert not project.closures.holds(closure)


def test_a_path_that_leaves_its_root_is_the_users(project: Project) -> None:
    path = str(project.root / "toolchain/../src/own.h")
    assert list(project.record(paths=[path]).files) == [path]


def test_files_of_the_store_and_ignored_ones_are_left_out(project: Project) -> None:
    tree = project.store.staging()
    (tree / "main.cpp").write_text("inline")
    project.write("pch/prelude.h.gch")
    let_the_clock_tick()
    closure = project.closures.record(
        ["main.cpp", str(project.root / "pch/prelude.h.gch")],
        [],
        [".", "/usr/include"],
        project.mark(),
        cwd=str(tree),
        ignore=[str(project.root / "pch")],
    )
    assert closure == Closure()
    assert project.closures.holds(closure)


def test_union(project: Project) -> None:
    one, other = project.record(paths=project.read[:3]), project.record(paths=project.read[3:])
    both = Closure.union([one, other, one])
    assert project.closures.holds(both)
    assert set(both.files) == set(project.read[:5])
    assert len(both.guards) == 2
    for name in ("first/lib/used.h", "first/plain.h"):  # each guard still guards
        project.write(name)
        assert not project.closures.holds(both)
        (project.root / name).unlink()
        assert project.closures.holds(both)
    with pytest.raises(ChangedDuringBuild):
        Closure.union([one, Closure(files={project.read[0]: "0" * 64})])


def test_a_header_set_that_is_gone_does_not_hold(project: Project) -> None:
    closure = project.record()
    (path,) = (path for path in (project.store.root / "headers").rglob("*") if path.is_file())
    path.unlink()
    assert not project.closures.holds(closure)


def test_units_of_one_build_share_what_was_looked_at(project: Project) -> None:
    """All of them were compiled before: what changes between their records has changed for none."""
    seen = Seen()
    started = project.mark()

    def record(seen: Seen | None) -> Closure:
        roots = [str(project.root / "toolchain")]
        return project.closures.record(project.read, roots, project.searched, started, seen=seen)

    first = record(seen)
    assert first == record(None)
    project.write("toolchain/usr/vector", "other, and longer")
    assert record(seen) == first
    assert not project.closures.holds(first)
    with pytest.raises(ChangedDuringBuild):
        record(None)


def test_headers_that_cannot_be_watched_are_left_to_the_caller(project: Project) -> None:
    """As a relative path here, or a folder of the network: everything else is steady all the
    same.
    """
    closure = project.record()
    elsewhere = msgspec.structs.replace(
        closure, files={**closure.files, "elsewhere/own.h": "0" * 64}
    )
    toolchain = Paths(frozenset({project.read[-1]}))
    headers = {path for path in closure.files if path.endswith(".h")}
    assert project.closures.holds(closure)
    found = [
        project.closures.steady(one, toolchain) for one in (closure, closure, elsewhere, elsewhere)
    ]
    if project.watch.status()["watching"]:
        assert found == [None, headers, frozenset(), frozenset()]
    else:
        assert found == [None] * 4
    assert str(project.root / "src/ext.cpp") not in headers < set(closure.files)

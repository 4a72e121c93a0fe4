"""What may be recorded of a build: nothing that changed while it ran."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from tests.support.closures import Project, let_the_clock_tick, swap_link
from warmcc.daemon.closure import header_sets
from warmcc.daemon.closure.closure import ChangedDuringBuild
from warmcc.daemon.closure.marker import Marker


@pytest.mark.parametrize("name", ["src/ext.cpp", "src/own.h", "toolchain/usr/vector"])
@pytest.mark.parametrize("how", ["content", "mtime", "renamed over", "deleted"])
def test_a_change_during_the_build_is_not_recorded(project: Project, name: str, how: str) -> None:
    path = project.root / name
    started = project.mark()
    if how == "content":
        path.write_text("// changed")
    elif how == "mtime":
        os.utime(path, ns=(1, 1))  # an old date does not hide it
    elif how == "renamed over":
        project.write("new")
        os.utime(project.root / "new", ns=(1, 1))
        os.replace(project.root / "new", path)
    else:
        path.unlink()
    with pytest.raises(ChangedDuringBuild) as raised:
        project.record(started)
    assert raised.value.path == str(path)


def of_sources(project: Project) -> Marker:
    let_the_clock_tick()
    return Marker.take(project.store.root / "staging", [project.read[0]])


@pytest.mark.parametrize("how", ["content", "mtime", "renamed over", "deleted", "link", "mode"])
def test_a_change_of_a_header_that_is_watched_is_not_recorded(project: Project, how: str) -> None:
    """Nor one just before the build, when that was not yet seen."""
    known = project.record(of_sources(project))
    assert project.closures.holds(known)
    path = project.root / "toolchain/torch/torch/extension.h"
    project.write("other.h", "// other")
    started = of_sources(project)
    if how == "content":
        path.write_text("// changed")
    elif how == "mtime":
        os.utime(path, ns=(1, 1))
    elif how == "renamed over":
        os.replace(project.root / "other.h", path)
    elif how == "deleted":
        path.unlink()
    elif how == "link":
        path.unlink()
        path.symlink_to(project.root / "other.h")
    else:
        path.chmod(0o600)
    with pytest.raises(ChangedDuringBuild):
        project.record(started)
    if how != "deleted":
        again = project.record(of_sources(project))
        assert (again.headers == known.headers) == (how == "mode")
        assert project.closures.holds(again)


def test_headers_that_are_watched_are_not_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(tmp_path)
    known = project.record(of_sources(project))
    assert project.closures.holds(known)
    monkeypatch.setattr(header_sets, "look", None)
    assert project.record(of_sources(project)) == known
    project.watch.close()
    with pytest.raises(TypeError):
        project.record(of_sources(project))


@pytest.mark.parametrize(
    "name",
    [
        "src/plain.h", "src/lib/used.h", "first/plain.h", "first/lib/used.h",
        "first/lib/deep/far.h", "first/torch/extension.h", "first/vector", "toolchain/torch/vector",
    ],
)  # fmt: skip
def test_a_header_that_appears_in_front_during_the_build(project: Project, name: str) -> None:
    """The compiler may have looked there before, and the next build would read it."""
    started = project.mark()
    let_the_clock_tick()
    project.write("first/lib/unrelated.h")
    project.write("src/unrelated.h")
    project.record(started)
    project.write(name)
    with pytest.raises(ChangedDuringBuild, match="appeared during the build") as raised:
        project.record(started)
    assert raised.value.path == str(project.root / name)


def test_a_folder_with_old_headers_that_is_moved_in_front(project: Project) -> None:
    project.write("elsewhere/deep/far.h")
    os.utime(project.root / "elsewhere/deep/far.h", ns=(1, 1))
    let_the_clock_tick()
    started = project.mark()
    let_the_clock_tick()
    os.rename(project.root / "elsewhere/deep", project.root / "first/lib/deep")
    with pytest.raises(ChangedDuringBuild, match=r"first/lib(/deep)? appeared during the build"):
        project.record(started)


def test_a_library_that_appears_in_front_during_the_build(project: Project) -> None:
    started = project.mark()
    let_the_clock_tick()

    def link(*absent: str) -> None:
        roots, candidates = (
            [str(project.root / "toolchain")],
            [str(project.root / name) for name in absent],
        )
        project.closures.record(
            project.read, roots, [], started, absent=candidates, ignore=[str(project.root / "tree")]
        )

    project.write("tree/libx.so")
    link("first/libx.so", "tree/libx.so")
    project.write("first/libx.so")
    with pytest.raises(ChangedDuringBuild, match=r"first/libx.so appeared during the build"):
        link("first/libx.so")


def test_a_link_set_during_the_build_is_not_recorded(project: Project) -> None:
    root = project.root
    os.rename(root / "include", root / "include-1")
    shutil.copytree(root / "include-1", root / "include-2")
    (root / "include").symlink_to("include-1")
    let_the_clock_tick()
    started = Marker.take(project.store.root / "staging")
    project.record(started)
    swap_link(project)  # both folders are older than the build
    with pytest.raises(ChangedDuringBuild):
        project.record(started)


def test_write_and_build_at_once_is_recorded(project: Project) -> None:
    """A source written in the same tick of the clock as the build starts: the marker waits for the
    next one.
    """
    for turn in range(100):
        project.write("src/ext.cpp", f"// {turn}")
        started = Marker.take(project.store.root / "staging", [project.read[0]])
        assert project.closures.holds(project.record(started, project.read[:1]))


def test_a_write_just_after_the_marker_is_never_recorded(project: Project) -> None:
    for turn in range(100):
        started = Marker.take(project.store.root / "staging", [project.read[0]])
        project.write("src/own.h", f"// {turn}")  # no source: only its date tells
        with pytest.raises(ChangedDuringBuild):
            project.record(started, project.read[:2])


def test_the_marker_leaves_nothing_and_does_not_wait_for_the_future(project: Project) -> None:
    path = project.root / "src/ext.cpp"
    os.utime(path, ns=(2**62, 2**62))
    start = time.monotonic()
    started = project.mark()
    assert time.monotonic() - start < 1
    assert list((project.store.root / "staging").iterdir()) == []
    with pytest.raises(ChangedDuringBuild):
        project.record(started)


def test_a_source_with_a_clock_of_its_own(project: Project) -> None:
    """A file server whose clock is behind dates a change before the build; how the source looked
    tells.
    """
    started = project.mark()
    ahead = Marker(started.ns + 10**12, started.sources)
    project.record(ahead)
    project.write("src/ext.cpp", "// changed")
    with pytest.raises(ChangedDuringBuild):
        project.record(ahead)


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_only_regular_files_can_be_described(project: Project, kind: str) -> None:
    path = project.root / "src/odd"
    os.mkfifo(path) if kind == "pipe" else path.mkdir()
    let_the_clock_tick()
    with pytest.raises(ChangedDuringBuild, match="not a regular file"):
        project.record(paths=[str(path)])


def test_a_name_that_is_no_text(project: Project) -> None:
    path = os.fsdecode(os.fsencode(project.root / "src") + b"/\xff.h")
    Path(path).write_text("")
    let_the_clock_tick()
    with pytest.raises(ChangedDuringBuild, match="UTF-8"):
        project.record(paths=[path])

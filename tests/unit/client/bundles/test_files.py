"""The files that an artifact was made of, compared with those of another machine."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.calls import load_request
from warmcc import digest
from warmcc.client.bundles import files
from warmcc.client.bundles.layout import Entry, File, Needs
from warmcc.request import Request

NEEDS = Needs("x86_64", ".so", "2", "0", "", True)


class Project:
    """A source with headers in its folder and in two include paths; ``call`` is its request."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("src/k.h", "a/first.h", "b/second.h", "b/deep/third.h", "common.h"):
            self.write(name, f"// {name}")
        self.write("src/k.cpp", "")

    def write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def call(self, **more: Any) -> Request:
        paths = [str(self.root / "a"), str(self.root / "b")]
        return load_request([self.root / "src/k.cpp"], extra_include_paths=paths, **more)

    def entry(self, *names: str, **more: Any) -> Entry:
        """What was built here, and read these files."""
        read = {str(self.root / name): digest.of_file(self.root / name) for name in names}
        wanted = self.call(**more)
        found = files.described(wanted, read)
        return Entry(
            "k", "", "", "", 1, {}, {}, NEEDS, found, include_paths=wanted.extra_include_paths
        )


@pytest.fixture
def there(tmp_path: Path) -> Project:
    return Project(tmp_path / "there")


@pytest.fixture
def here(there: Project, tmp_path: Path) -> Project:
    shutil.copytree(there.root, tmp_path / "elsewhere/here")
    one = Project(tmp_path / "elsewhere/here")
    there.root.rename(tmp_path / "gone")  # the other machine's folders are not here
    (tmp_path / "gone").rename(there.root)
    return one


ALL = ("src/k.cpp", "src/k.h", "a/first.h", "b/second.h", "b/deep/third.h", "common.h")


def test_they_are_named_by_the_folders_of_the_call(there: Project) -> None:
    found = [(one.root, one.number, one.path) for one in there.entry(*ALL).files]
    assert found == [
        ("include", 0, "first.h"), ("include", 1, "deep/third.h"), ("include", 1, "second.h"),
        ("source", 0, "../common.h"), ("source", 0, "k.h"),
    ]  # fmt: skip


def moved(there: Project) -> Entry:
    entry = there.entry(*ALL)
    shutil.rmtree(there.root)
    return entry


def test_equal_files_elsewhere_are_equal(there: Project, here: Project) -> None:
    assert files.difference(moved(there), here.call()) == ""


@pytest.mark.parametrize("name", ALL[1:])
def test_another_content_is_refused(there: Project, here: Project, name: str) -> None:
    here.write(name, "// changed")
    said = files.difference(moved(there), here.call())
    assert said == f"{here.root / name} differs from the file that it was built with"


@pytest.mark.parametrize("name", ALL[1:])
def test_a_file_that_is_missing_is_refused(there: Project, here: Project, name: str) -> None:
    (here.root / name).unlink()
    said = files.difference(moved(there), here.call())
    assert said == f"{here.root / name} does not exist, and it was built with it"


def test_a_header_in_front_is_refused(there: Project, here: Project) -> None:
    """It would be found first: in an earlier include path, or beside the source."""
    entry = moved(there)
    for name in ("a/second.h", "src/second.h"):
        here.write(name, "")
        assert "second.h is in other folders than where it was built" in files.difference(
            entry, here.call()
        )
        (here.root / name).unlink()
    here.write("b/first.h", "")  # behind
    assert files.difference(entry, here.call()) == ""


def test_include_paths_need_not_be_there_where_the_call_names_the_same(
    there: Project, here: Project
) -> None:
    entry = there.entry("a/first.h", "b/second.h")
    for name in ("a", "b"):
        shutil.rmtree(there.root / name)
        shutil.rmtree(here.root / name)
    assert files.difference(entry, there.call()) == ""
    said = files.difference(entry, here.call())
    assert said == f"{here.root / 'a'} does not exist, so its headers cannot be compared"


def test_a_path_that_a_flag_names(there: Project, tmp_path: Path) -> None:
    """It is compared where it is there, and need not be there: the flag is in the key."""
    other = tmp_path / "other"
    other.mkdir()
    header = other / "x.h"
    header.write_text("1")
    flags = [f"-I{other}"]
    read = {str(header): digest.of_file(header)}
    found = files.described(there.call(extra_cflags=flags), read)
    assert found == [File("named", 0, str(header), read[str(header)])]
    entry = Entry("k", "", "", "", 1, {}, {}, NEEDS, found)
    assert files.difference(entry, there.call(extra_cflags=flags)) == ""
    header.write_text("2")
    assert "differs" in files.difference(entry, there.call(extra_cflags=flags))
    header.unlink()
    assert files.difference(entry, there.call(extra_cflags=flags)) == ""
    longer = files.described(there.call(extra_cflags=[f"-I{other}2"]), read)
    assert longer[0].root == "source", "a part of a folder's name is not its name"


def test_a_folder_in_the_place_of_a_file_is_refused(there: Project, here: Project) -> None:
    (here.root / "a/first.h").unlink()
    (here.root / "a/first.h").mkdir()
    assert "differs" in files.difference(moved(there), here.call())

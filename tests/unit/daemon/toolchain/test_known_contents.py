"""What is known of files' contents, on real files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from warmcc import digest
from warmcc.daemon.toolchain.known_contents import KnownContents

LONG_AGO = 1_600_000_000_000_000_000


@pytest.fixture
def header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that was changed long enough ago to be known by its times."""
    monkeypatch.setattr("warmcc.daemon.toolchain.known_contents._SETTLED_NS", -1)
    path = tmp_path / "a.h"
    path.write_text("int a;\n")
    dated(path, LONG_AGO)
    return path


def dated(path: Path, mtime_ns: int) -> None:
    os.utime(path, ns=(mtime_ns, mtime_ns))


def learned(path: Path, known: KnownContents) -> tuple[int, int]:
    found = path.stat()
    known.learn(str(path), found.st_size, found.st_mtime_ns)
    return found.st_size, found.st_mtime_ns


def test_another_time_alone_makes_no_other_content(header: Path) -> None:
    known = KnownContents()
    was = learned(header, known)
    dated(header, LONG_AGO + 5)
    assert known.is_what_was(str(header), *was)


def test_another_content_of_the_same_size(header: Path) -> None:
    known = KnownContents()
    was = learned(header, known)
    header.write_text("int b;\n")
    assert not known.is_what_was(str(header), *was)
    header.write_text("int a;\n")
    assert known.is_what_was(str(header), *was), "it is read again after each change"


def test_nothing_is_known_of_what_was_not_read(header: Path) -> None:
    was = header.stat()
    dated(header, LONG_AGO + 5)
    known = KnownContents()
    known.learn(str(header), was.st_size, was.st_mtime_ns)  # it is another one by now
    assert not known.is_what_was(str(header), was.st_size, was.st_mtime_ns)


def test_two_contents_with_one_time_are_none(header: Path) -> None:
    known = KnownContents()
    was = learned(header, known)
    header.write_text("int b;\n")
    dated(header, LONG_AGO)
    assert known.digest(str(header)) == digest.of_bytes(b"int b;\n")
    dated(header, LONG_AGO + 5)
    assert not known.is_what_was(str(header), *was)


def test_a_file_is_read_once(header: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known, read = KnownContents(), []
    of_file = digest.of_file
    monkeypatch.setattr(digest, "of_file", lambda path: read.append(path) or of_file(path))
    first = known.digest(str(header))
    assert known.digest(str(header)) == first and len(read) == 1
    os.chmod(header, 0o600)  # its ctime changes
    assert known.digest(str(header)) == first and len(read) == 2


def test_a_file_that_has_just_changed_is_not_remembered(tmp_path: Path) -> None:
    path = tmp_path / "a.h"
    path.write_text("int a;\n")
    known = KnownContents()
    was = learned(path, known)
    dated(path, LONG_AGO)
    assert not known.is_what_was(str(path), *was)


def test_it_is_kept_for_the_next_daemon_and_another_place(header: Path, tmp_path: Path) -> None:
    kept = tmp_path / "contents"
    known = KnownContents(kept)
    was = learned(header, known)
    known.save()
    shutil.copy(header, tmp_path / "copy")  # another inode, another time
    (tmp_path / "copy").replace(header)
    assert KnownContents(kept).is_what_was(str(header), *was)
    kept.write_bytes(kept.read_bytes()[:-3])
    assert not KnownContents(kept).is_what_was(str(header), *was), "what is damaged is not known"


def test_a_folder_that_cannot_be_written_to_costs_time_alone(header: Path, tmp_path: Path) -> None:
    known = KnownContents(tmp_path / "gone" / "contents")
    was = learned(header, known)
    known.save()
    dated(header, LONG_AGO + 5)
    assert known.is_what_was(str(header), *was)
    assert sorted(os.listdir(tmp_path)) == ["a.h"]


def test_what_was_known_longest_is_forgotten(header: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warmcc.daemon.toolchain.known_contents._PATHS", 2)
    known = KnownContents()
    was = learned(header, known)
    for name in "bc":
        header.with_name(name).write_text(name)
        learned(header.with_name(name), known)
    dated(header, LONG_AGO + 5)
    assert not known.is_what_was(str(header), *was)

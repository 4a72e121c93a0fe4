"""Equal calls in one process while headers, compilers and files change."""

from __future__ import annotations

import mmap
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import warmcc
from tests.support.caller import SOURCE, Caller
from warmcc.client.connection import session
from warmcc.contents import Contents

pytestmark = pytest.mark.usefixtures("no_session_of_before")


def test_a_file_of_the_users_with_its_old_size_and_time(caller: Caller, tmp_path: Path) -> None:
    source, header = tmp_path / "unit.cpp", tmp_path / "answer.h"
    source.write_text('#include "answer.h"\n' + SOURCE.replace("FromLong(7)", "FromLong(ANSWER)"))
    header.write_text("#define ANSWER 1\n")
    (tmp_path / "elsewhere").mkdir()
    other = (
        tmp_path / "elsewhere/another name"
    )  # no watch on the header's folder sees what is written here
    os.link(header, other)

    def call() -> Any:
        return warmcc.load("tiny", [str(source)])

    caller.remember(call)
    for answer in (2, 3):
        look = header.stat()
        other.write_text(f"#define ANSWER {answer}\n")
        os.utime(other, ns=(look.st_atime_ns, look.st_mtime_ns))
        assert call().answer() == answer
        caller.remember(call)


def _through_a_mapping(header: Path, text: bytes) -> None:
    with open(header, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[:] = text


def _by_another_name(header: Path, text: bytes) -> None:
    other = header.parent.parent / "another name"
    os.link(header, other)
    other.write_bytes(text)


def _replaced(header: Path, text: bytes) -> None:
    draft = header.parent.parent / "draft"
    draft.write_bytes(text)
    os.replace(draft, header)


def _linked(header: Path, text: bytes) -> None:
    draft = header.parent.parent / "draft.h"
    draft.write_bytes(text)
    header.unlink()
    header.symlink_to(draft)


def _moved(header: Path, text: bytes) -> None:
    there = header.parent.parent / "there"
    shutil.copytree(header.parent, there)
    (there / header.name).write_bytes(text)
    header.parent.rename(header.parent.with_name("away"))
    there.rename(header.parent)


@pytest.mark.parametrize(
    "change",
    [
        Path.write_bytes,
        *(
            pytest.param(change, marks=pytest.mark.slow)
            for change in (_through_a_mapping, _by_another_name, _replaced, _linked)
        ),
        _moved,
    ],
)
def test_a_header_of_the_users_is_watched(
    change: Callable[[Path, bytes], Any],
    caller: Caller,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is not read while nothing is reported of it; with its old size and times it is noticed as
    well.
    """
    source, header = tmp_path / "unit.cpp", tmp_path / "own/answer.h"
    source.write_text(
        '#include "own/answer.h"\n' + SOURCE.replace("FromLong(7)", "FromLong(ANSWER)")
    )
    header.parent.mkdir()
    header.write_text("#define ANSWER 1\n")

    def call() -> Any:
        return warmcc.load("tiny", [str(source)])

    caller.remember(call)
    read: list[str] = []
    are = Contents.are
    monkeypatch.setattr(
        Contents,
        "are",
        lambda self, path, known: [read.append(path), are(self, path, known)][1],
    )
    assert call().answer() == 1
    assert read == [str(source)]
    look = header.stat()
    change(header, b"#define ANSWER 2\n")
    os.utime(header, ns=(look.st_atime_ns, look.st_mtime_ns))
    assert call().answer() == 2


def test_a_compiler_that_appears_on_path(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    caller.remember()
    (tmp_path / "unrelated").touch()
    caller.remember()
    compiler = tmp_path / "c++"
    compiler.write_text(f'#!/bin/sh\nexec {shutil.which("g++")} "$@"\n')
    compiler.chmod(0o755)
    assert caller.asks(caller.call)
    caller.remember()
    folder = tmp_path.rename(tmp_path.with_name("elsewhere"))
    assert caller.asks(caller.call), f"{folder} is no longer where PATH says"


def test_a_compiler_in_quotes_that_appears_on_path(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CXX", '"g++"')
    monkeypatch.setenv("TORCH_DONT_CHECK_COMPILER_ABI", "1")  # stock warns of the quotes
    caller.remember()
    compiler = tmp_path / "g++"
    compiler.write_text(f'#!/bin/sh\nexec {shutil.which("g++", path="/usr/bin")} "$@"\n')
    compiler.chmod(0o755)
    assert caller.asks(caller.call)


def test_a_header_that_became_a_pipe_is_the_compilers_to_read(
    caller: Caller, tmp_path: Path
) -> None:
    """It would block who opens it; and the time limit of a caller, by a signal's handler, stays the
    caller's.
    """
    source, header = tmp_path / "unit.cpp", tmp_path / "answer.h"
    source.write_text('#include "answer.h"\n' + SOURCE.replace("FromLong(7)", "FromLong(ANSWER)"))
    header.write_text("#define ANSWER 1\n")

    def call() -> Any:
        return warmcc.load("tiny", [str(source)])

    caller.remember(call)
    known = session.memory()
    assert known is not None
    (key,) = (key for key, found in known._known.items() if str(header) in found.answer.files)
    header.unlink()
    os.mkfifo(header)
    assert known.recall(key) is None

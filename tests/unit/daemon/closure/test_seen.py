"""What is seen of the files of a build is looked at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from warmcc.daemon.closure.seen import Seen


def test_each_question_is_asked_of_a_path_once(tmp_path: Path) -> None:
    asked: list[str] = []

    def is_file(path: str) -> bool:
        asked.append(path)
        return os.path.isfile(path)

    seen = Seen()
    for _ in range(2):
        assert not seen.asked(is_file, str(tmp_path))
        assert seen.asked(os.path.isdir, str(tmp_path))
    assert asked == [str(tmp_path)]


@pytest.mark.parametrize(
    "path",
    [
        "plain/file", "link/file", "plain", "link", "link/", "plain/../link/file", "./plain",
        "loop", "loop/file", "missing/file", "link//file", "link/up/plain",
    ],
)  # fmt: skip
def test_where_a_path_leads(tmp_path: Path, path: str) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain/file").touch()
    (tmp_path / "plain/up").symlink_to("..")
    (tmp_path / "link").symlink_to("plain")
    (tmp_path / "loop").symlink_to("loop")
    seen = Seen()
    for whole in (f"{tmp_path}/{path}", f"{tmp_path}/link/file", path, f"//{path}"):
        assert seen.real(whole) == os.path.realpath(whole)
        assert seen.real(whole) == os.path.realpath(whole), "again"

"""What is seen of the files of a build is looked at once."""

from __future__ import annotations

import os
from pathlib import Path

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

"""Files compared by their bytes say what their digests say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from warmcc import digest
from warmcc.contents import Contents


def test_contents_are_compared(tmp_path: Path) -> None:
    """The second look compares bytes in place of digests, and says the same; more than the limit is
    not kept.
    """
    path = tmp_path / "file"
    contents = Contents(limit=8)
    texts = [b"", b"a", b"abcdefgh", b"abcdefghi", b"abcdefg", b"b" * 9]
    for known in texts:
        for there in (known, *texts, known):
            path.write_bytes(there)
            assert contents.are(str(path), digest.of_bytes(known)) == (there == known)
            assert contents._size == sum(map(len, contents._known.values())) <= 8
    path.unlink()
    with pytest.raises(FileNotFoundError):
        contents.are(str(path), digest.of_bytes(b"a"))
    os.mkfifo(path)
    assert not contents.are(str(path), digest.of_bytes(b""))


def test_a_file_over_the_limit_is_compared_by_its_digest(tmp_path: Path) -> None:
    path = tmp_path / "library.a"
    contents = Contents(limit=1000)
    for content in (bytes(1001), bytes(1001), b"x" * 5000):
        path.write_bytes(content)
        assert contents.are(str(path), digest.of_bytes(content))
        assert not contents.are(str(path), digest.of_bytes(bytes(1000)))

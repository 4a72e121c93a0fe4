"""Digests: equal for what is equal, and for nothing else."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from warmcc import digest

SIZES = [0, 1, (1 << 16) - 1, 1 << 16, (1 << 16) + 1, (1 << 20) + (1 << 16) + 1, 3 << 20]


def descriptors() -> list[str]:
    return os.listdir("/proc/self/fd")


def test_bytes_have_the_digest_that_other_tools_give_them() -> None:
    """The first example of FIPS 180-2."""
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert digest.of_bytes(b"abc") == expected


def test_equal_values_have_equal_digests_in_whatever_order_they_were_made() -> None:
    one = {"b": [1, {"y": None, "x": "text"}], "a": b"bytes"}
    other = {"a": b"bytes", "b": [1, {"x": "text", "y": None}]}
    assert digest.of_value(one) == digest.of_value(other)
    assert digest.of_value(("a", 1)) == digest.of_value(["a", 1])
    assert digest.of_value({"c", "a", "b"}) == digest.of_value({"b", "c", "a"})


def test_different_values_have_different_digests() -> None:
    values: list[Any] = [
        None, "", b"", [], {}, 0, False, "0", b"0", [0], ["0"], [[]], ["a", "b"], ["b", "a"],
        ["ab"],
        [["a"], "b"], ["a", ["b"]], {"a": "b"}, {"b": "a"}, {"a": None}, [None], "a b", "a  b", 1.5,
    ]  # fmt: skip
    assert len({digest.of_value(value) for value in values}) == len(values)


def test_what_cannot_be_encoded_has_no_digest() -> None:
    with pytest.raises(TypeError):
        digest.of_value([object()])


@pytest.mark.parametrize("size", SIZES)
def test_a_file_has_the_digest_of_its_content(size: int, tmp_path: Path) -> None:
    """Of all blocks that it is read in."""
    content = (bytes(range(251)) * (size // 251 + 1))[:size]
    (tmp_path / "file").write_bytes(content)
    expected = hashlib.sha256(content).hexdigest()
    assert digest.of_file(tmp_path / "file") == digest.of_file(f"{tmp_path}/file") == expected


def test_a_change_behind_the_first_block_is_seen(tmp_path: Path) -> None:
    content = bytearray(1 << 21)
    seen = set()
    for place in (0, 1 << 16, 1 << 20, (1 << 21) - 1):
        content[place] ^= 1
        (tmp_path / "file").write_bytes(content)
        seen.add(digest.of_file(tmp_path / "file"))
    assert len(seen) == 4


def test_a_file_that_cannot_be_read_is_an_error_and_stays_closed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    before = descriptors()
    digest.of_file(tmp_path / "file")
    with pytest.raises(FileNotFoundError):
        digest.of_file(tmp_path / "nothing")
    with pytest.raises(IsADirectoryError):
        digest.of_file(tmp_path)
    assert len(descriptors()) == len(before)


def test_a_file_is_read_with_the_rights_to_read(tmp_path: Path) -> None:
    """A file that a running program maps cannot be opened for writing; a hit reads such files."""
    program = tmp_path / "program"
    program.write_bytes(Path("/bin/sleep").read_bytes())
    program.chmod(0o755)
    child = os.posix_spawn(str(program), ["sleep", "60"], {})
    try:
        assert digest.of_file(program) == digest.of_bytes(Path("/bin/sleep").read_bytes())
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0123456789abcdef" * 4, True), ("f" * 64, True), ("9" * 64, True), ("a" * 63, False),
        ("a" * 65, False),
        ("A" * 64, False), ("X" * 64, False), ("g" * 64, False),
        ("", False), ("a" * 64 + "\n", False),
        (" " + "a" * 63, False),
        ("../" + "a" * 61, False), ("a" * 32 + "/" + "a" * 31, False), ("٣" * 64, False),
    ],
)  # fmt: skip
def test_only_lower_case_hex_of_the_whole_length_is_a_digest(text: str, expected: bool) -> None:
    assert digest.is_digest(text) is expected

"""Parts of the example of a leaderboard that need neither a daemon nor a process: whose turn it is,
which files are submissions, and which bytes are messages.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch

from leaderboard import frames
from leaderboard.evaluator import Queue
from leaderboard.submission import SIZE, Refused, Report, Submission, in_folder


def test_users_take_turns() -> None:
    queue = Queue(each=3)
    for name in ("a", "b", "c"):
        assert queue.put(Submission("eve", name, ""))
    assert not queue.put(Submission("eve", "d", "")), "a user has too many waiting"
    assert queue.put(Submission("ada", "e", ""))
    first = queue.take()
    second = queue.take()
    assert first is not None and (first.user, second and second.user) == ("eve", "ada")
    queue.put(Submission("ada", "f", ""))
    queue.done(first)
    third = queue.take()
    assert third is not None and third.user == "eve", "who has none in work comes first"
    queue.close()
    assert [one.user for one in iter(queue.take, None)] == ["ada", "eve"]


def test_files_that_are_no_submissions(tmp_path: Path) -> None:
    (tmp_path / "eve").mkdir()
    (tmp_path / "link").symlink_to("/etc")
    (tmp_path / "eve" / "link.cpp").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "eve" / "pipe.cpp")
    (tmp_path / "eve" / "large.cu").write_text("x" * (SIZE + 1))
    (tmp_path / "eve" / "a b.cpp").write_text("")
    (tmp_path / "eve" / "good.cu").write_text("// flags: -O3 -DN=1\n// ldflags: -lm\nint f;\n")
    found = {one.name: one for one in in_folder(tmp_path)}
    good = found.pop("good")
    assert isinstance(good, Submission) and good.language == "cuda"
    assert (good.flags, good.ldflags) == (["-O3", "-DN=1"], ["-lm"])
    said = {name: one.log for name, one in found.items() if isinstance(one, Report)}
    assert said["link"].startswith("Too many levels of symbolic links")
    assert said["pipe"] == "the source is not a file"
    assert said["large"] == "the source is larger than 256 KiB"
    assert said["a b"].startswith("the name must be")
    with pytest.raises(Refused, match="the user must be"):
        Submission("../eve", "x", "")


@pytest.mark.parametrize(
    "sent",
    [
        b"\0\0\0\2" + b"\0" * 8 + b"{}",
        b"\0\0\0\2" + b"\0" * 8 + b"[]",
        b"\0\0\0\2" + b"\x7f" + b"\0" * 7 + b"{}",
        b"\x7f\0\0\0" + b"\0" * 8,
        b"\0\0\xff\0" + b"\0" * 8 + b"[" * 0xFF00,
        *(
            len(text).to_bytes(4, "big") + (4).to_bytes(8, "big") + text + b"abcd"
            for text in (
                b'{"tensors": [["float32", 2]]}',
                b'{"tensors": [["float32", -1]]}',
                b'{"tensors": [["float32", 1e3]]}',
                b'{"tensors": [["float32", true, "x"]]}',
                b'{"tensors": [["object", 1]]}',
                b'{"tensors": [[]]}',
                b'{"tensors": 7}',
                b'{"tensors": [["float32", 0, 99999999999999999999999]]}',
            )
        ),
    ],
)
def test_what_is_no_message(sent: bytes) -> None:
    (read, write), (unread, unwritten) = os.pipe(), os.pipe()
    try:
        os.write(write, sent)
        os.close(write)
        with pytest.raises(frames.Nonsense):
            frames.Pipe(read, unwritten, time.monotonic() + 5).receive(1000)
    finally:
        for end in (read, unread, unwritten):
            os.close(end)


def test_tensors_arrive_as_they_were_sent() -> None:
    (read, write), (unread, unwritten) = os.pipe(), os.pipe()
    given = [torch.randn(3, 4), torch.arange(5), torch.empty(0, 7), torch.tensor(True)]
    try:
        frames.Pipe(unread, write).send({"n": 1}, given)
        header, found = frames.Pipe(read, unwritten, time.monotonic() + 5).receive(1000)
        assert header["n"] == 1
        assert all(map(torch.equal, found, given))
        with pytest.raises(frames.TooLate):
            frames.Pipe(read, unwritten, time.monotonic() + 0.1).receive(1000)
    finally:
        for end in (read, write, unread, unwritten):
            os.close(end)

"""Equal calls in one process: given from memory while nothing has changed, and asked of the daemon
when something has.

Where a test says that the daemon was asked, it says so from the daemon's own count.
"""

from __future__ import annotations

import mmap
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import warmcc
from tests.support.calls import module_source
from tests.support.daemons import Daemon
from warmcc import digest
from warmcc.client.connection import remembering, session
from warmcc.protocol import Cache

pytestmark = pytest.mark.usefixtures("no_session_of_before")
_UNTIL_REMEMBERED = 6
_SOURCE = (
    module_source(7, "NAMED")
    .replace('"NAMED"', '"tiny"')
    .replace("PyInit_NAMED", "INIT(TORCH_EXTENSION_NAME)")
)
SOURCE = "#define INIT(name) INIT_(name)\n#define INIT_(name) PyInit_##name\n" + _SOURCE


class Caller:
    """This process, as the client of one daemon."""

    def __init__(self, daemon: Daemon, patch: pytest.MonkeyPatch) -> None:
        self.daemon = daemon
        for name, value in daemon.environment.items():
            patch.setenv(name, value)

    def call(self, **changes: Any) -> Any:
        return warmcc.load_inline("tiny", SOURCE, no_implicit_headers=True, **changes)

    def asks(self, call: Callable[[], Any]) -> bool:
        """Whether the daemon is asked by a call."""
        before = self.daemon.status()["requests"]["total"]
        call()
        return bool(self.daemon.status()["requests"]["total"] != before)

    def remember(self, call: Callable[[], Any] | None = None) -> None:
        """Make a call until it is not asked of the daemon any more. It is asked once more whenever
        anything happens in a folder that is watched for other names, which another process may do
        at any time."""
        assert any(not self.asks(call or self.call) for _ in range(_UNTIL_REMEMBERED)), (
            "it is never remembered"
        )


@pytest.fixture
def caller(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Caller:
    return Caller(daemon, monkeypatch)


@pytest.fixture
def caller_of_its_own(
    fresh_daemon: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch
) -> Caller:
    return Caller(fresh_daemon(), monkeypatch)


def test_an_equal_call_gives_the_same_module_and_asks_nobody(caller: Caller) -> None:
    first = caller.call()
    caller.remember()
    assert caller.call() is first
    assert first.answer() == 7


def test_what_was_built_is_watched_before_it_is_asked_for_again(
    caller: Caller, tmp_path: Path
) -> None:
    """So the next process asks once. What happens in folders that are watched may cost it a second
    time.
    """
    for place in map(str, range(5)):
        (tmp_path / place).mkdir()
        source = tmp_path / place / "unit.cpp"
        source.write_text(SOURCE)

        def call(path: str = str(source)) -> Any:
            return warmcc.load("tiny", [path])

        call()
        time.sleep(0.5)
        session.forget()
        assert caller.asks(call)
        if not caller.asks(call):
            return
    pytest.fail("the first hit is never remembered")


def test_a_variable_and_the_working_directory_are_part_of_a_call(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    caller.remember()
    monkeypatch.setenv("CPATH", str(tmp_path))
    assert caller.asks(caller.call)
    monkeypatch.delenv("CPATH")
    caller.remember()
    monkeypatch.chdir(tmp_path)
    assert caller.asks(caller.call)


def test_a_list_that_was_changed_is_another_argument(caller: Caller) -> None:
    flags = ["-DONE"]
    caller.remember(lambda: caller.call(extra_cflags=flags))
    flags.append("-DTWO")
    assert caller.asks(lambda: caller.call(extra_cflags=flags))


@pytest.mark.parametrize("damage", ["removed", "replaced"])
def test_an_artifact_that_is_not_what_it_was(damage: str, caller: Caller) -> None:
    caller.remember()
    artifact = Path(caller.call().__file__)
    kept = artifact.read_bytes()
    if damage == "removed":
        artifact.unlink()
    else:
        draft = artifact.with_name("draft")
        draft.write_bytes(bytes(len(kept)))
        shutil.copystat(artifact, draft)
        os.replace(draft, artifact)
    assert caller.asks(caller.call)
    assert artifact.read_bytes()[:4] == b"\x7fELF"


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
    "change", [Path.write_bytes, _through_a_mapping, _by_another_name, _replaced, _linked, _moved]
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
    are = remembering.Contents.are
    monkeypatch.setattr(
        remembering.Contents,
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


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_daemon_that_ended(end: str, caller_of_its_own: Caller) -> None:
    caller_of_its_own.remember()
    getattr(caller_of_its_own.daemon, end)()
    with pytest.raises(warmcc.WarmccError, match="daemon is not running"):
        caller_of_its_own.call()
    caller_of_its_own.daemon.start()
    assert caller_of_its_own.asks(caller_of_its_own.call)
    caller_of_its_own.remember()


def test_a_cleared_cache(caller_of_its_own: Caller) -> None:
    caller_of_its_own.remember()
    artifact = Path(caller_of_its_own.call().__file__)
    caller_of_its_own.daemon.ask(Cache(1, "clear"), 60.0)
    assert caller_of_its_own.call().answer() == 7
    assert artifact.exists(), "what a process has loaded is in use"


def test_a_child_of_fork_asks_for_itself(caller: Caller) -> None:
    caller.remember()
    before = caller.daemon.status()["requests"]["total"]
    if (pid := os.fork()) == 0:
        os._exit(0 if session.memory() is None and caller.call().answer() == 7 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert caller.daemon.status()["requests"]["total"] == before + 1
    caller.remember()  # the parent's memory is still its own


def test_threads_at_once(caller: Caller) -> None:
    found: list[int] = []
    before = caller.daemon.status()["requests"]["total"]

    def work() -> None:
        found.extend(caller.call().answer() for _ in range(50))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [7] * 400
    assert caller.daemon.status()["requests"]["total"] - before < 200, "most of them asked nobody"


def test_a_connection_that_was_cut_is_not_believed(caller: Caller) -> None:
    """A signal's handler may raise anywhere; the numbers of its descriptors are then somebody
    else's, who is silent.
    """
    caller.remember()
    known = session.memory()
    assert known is not None and known.recall(key := next(iter(known._known))) is not None
    numbers = [known._connection.fileno(), *known._connection.descriptors]
    silent = os.pipe()
    known._connection.close()
    for number in numbers:
        os.dup2(silent[0], number)
    try:
        assert known.recall(key) is None
    finally:
        for number in {*silent, *numbers}:
            os.close(number)
    assert caller.asks(caller.call)


def test_nobody_can_cut_or_write_the_page(caller: Caller) -> None:
    caller.remember()
    known = session.memory()
    assert known is not None
    for page in known._connection.descriptors[:1]:
        for damage in (lambda page: os.ftruncate(page, 0), lambda page: os.write(page, bytes(8))):
            with pytest.raises(PermissionError):
                damage(page)


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


def test_contents_are_compared(tmp_path: Path) -> None:
    """The second look compares bytes in place of digests, and says the same; more than the limit is
    not kept.
    """
    path = tmp_path / "file"
    contents = remembering.Contents(limit=8)
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


def test_a_callers_own_time_limit_is_the_callers(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller.remember()
    known = session.memory()
    assert known is not None

    def late(_: str) -> str:
        raise TimeoutError("of a signal's handler")

    monkeypatch.setattr(remembering, "look", late)
    with pytest.raises(TimeoutError, match="handler"):
        known.recall(next(iter(known._known)))


def test_nothing_stays_open(caller: Caller) -> None:
    caller.remember()
    session.forget()
    before = len(os.listdir("/proc/self/fd"))
    caller.remember()
    assert len(os.listdir("/proc/self/fd")) > before
    session.forget()
    assert len(os.listdir("/proc/self/fd")) == before


def test_another_torch_is_another_call(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    caller.remember()
    monkeypatch.setattr(sys.modules["torch"], "__version__", "0.1")
    with pytest.raises(warmcc.WarmccError, match=r"torch 0\.1 is imported"):
        caller.call()

"""Equal calls in one process: given from memory while nothing has changed, and asked of the daemon
when something has.

Where a test says that the daemon was asked, it says so from the daemon's own count.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import warmcc
from tests.support.caller import SOURCE, Caller
from warmcc.client.connection import remembering, session
from warmcc.protocol import Cache

pytestmark = pytest.mark.usefixtures("no_session_of_before")


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


@pytest.mark.parametrize("variable", ["WARMCC_DISABLE", "WARMCC_OFFLINE"])
def test_what_is_remembered_is_no_way_around_a_switch(
    variable: str, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller.remember()
    remembered = caller.call()
    monkeypatch.setenv(variable, "1")
    if variable == "WARMCC_OFFLINE":
        with pytest.raises(warmcc.OfflineError, match="no unpacked bundle has 'tiny'"):
            caller.call()
    else:
        assert caller.call().__file__ != remembered.__file__, "stock has a file of its own"


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


@pytest.mark.slow
@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_daemon_that_ended(end: str, caller_of_its_own: Caller) -> None:
    caller_of_its_own.remember()
    getattr(caller_of_its_own.daemon, end)()
    with pytest.raises(warmcc.WarmccError, match="daemon is not running"):
        caller_of_its_own.call()
    caller_of_its_own.daemon.start()
    assert caller_of_its_own.asks(caller_of_its_own.call)
    caller_of_its_own.remember()


@pytest.mark.slow
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
    assert known is not None
    key = next(key for key in list(known._known) if known.recall(key) is not None)
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

"""A lock file of stock's that a dead process left hangs nobody; one that is held is respected."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from warmcc.client import notices
from warmcc.client.stock import lock_file
from warmcc.errors import WarmccWarning

HOLD = """
import os, sys
os.open(sys.argv[1], os.O_CREAT | os.O_EXCL)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _fresh_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "_given", set())


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds ``lock`` as stock does: it created the file and has it open."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None and child.stdin is not None
    assert child.stdout.readline() == "held\n"
    yield child
    child.kill()
    child.wait()
    child.stdout.close()
    child.stdin.close()


def stocks_own() -> Any:
    """torch's FileBaton, from its file: importing torch would take seconds."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    path = Path(spec.origin).parent / "utils/file_baton.py"
    spec = importlib.util.spec_from_file_location("file_baton", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FileBaton


def test_a_lock_of_a_dead_process_is_removed_with_a_warning(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    with pytest.warns(
        WarmccWarning, match="lock, which a process that has ended left behind"
    ) as caught:
        assert lock_file.remove_if_stale(str(lock))
    assert caught[0].filename == __file__
    assert list(tmp_path.iterdir()) == []
    assert not lock_file.remove_if_stale(str(lock))


def test_a_held_lock_is_left_alone(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    assert not lock_file.remove_if_stale(str(tmp_path / "lock"))
    assert (tmp_path / "lock").exists()


def test_a_lock_of_this_process_is_left_alone(tmp_path: Path) -> None:
    with open(tmp_path / "lock", "x"):
        assert not lock_file.remove_if_stale(str(tmp_path / "lock"))


def test_a_lock_that_is_being_given_back_is_left_to_its_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stock closes the file, then deletes it: between the two it looks dead."""
    lock = tmp_path / "lock"
    lock.touch()
    timer = threading.Timer(0.1, lock.unlink)
    timer.start()
    assert not lock_file.remove_if_stale(str(lock))
    timer.join()


def test_a_lock_that_is_taken_anew_between_the_looks_is_left_alone(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    descriptors: list[int] = []

    def take() -> None:
        lock.unlink()
        descriptors.append(os.open(lock, os.O_CREAT | os.O_EXCL))

    timer = threading.Timer(0.1, take)
    timer.start()
    assert not lock_file.remove_if_stale(str(lock))
    timer.join()
    assert lock.exists()
    os.close(descriptors[0])


def acquire(extension: Any, lock: Path) -> threading.Thread:
    """Take and give back the lock in a thread, in stock's way."""

    def work() -> None:
        with lock_file.patient(extension):
            one = extension.FileBaton(str(lock))
            assert one.try_acquire()
            one.release()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_stock_waits_for_a_living_holder_and_then_builds_itself(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    extension = types.SimpleNamespace(FileBaton=stocks_own())
    thread = acquire(extension, tmp_path / "lock")
    thread.join(1.0)
    assert thread.is_alive() and (tmp_path / "lock").exists()
    (tmp_path / "lock").unlink()
    thread.join(5.0)
    assert not thread.is_alive()
    assert list(tmp_path.iterdir()) == []


def test_a_holder_that_dies_while_stock_waits_hangs_nobody(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    extension = types.SimpleNamespace(FileBaton=stocks_own())
    with pytest.warns(WarmccWarning, match="left behind"):
        thread = acquire(extension, tmp_path / "lock")
        time.sleep(0.3)
        holder.kill()
        holder.wait()
        thread.join(5.0)
    assert not thread.is_alive()
    assert list(tmp_path.iterdir()) == []


def test_stocks_class_is_put_back(tmp_path: Path) -> None:
    own = stocks_own()
    extension = types.SimpleNamespace(FileBaton=own)
    with lock_file.patient(extension):
        with lock_file.patient(extension):
            assert extension.FileBaton is not own
        assert extension.FileBaton is not own
        assert issubclass(extension.FileBaton, own)
    assert extension.FileBaton is own


def test_a_torch_without_the_class_is_left_alone() -> None:
    extension = types.SimpleNamespace()
    with lock_file.patient(extension):
        assert not hasattr(extension, "FileBaton")

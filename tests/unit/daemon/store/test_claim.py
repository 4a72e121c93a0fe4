"""One writer for each folder, whoever comes when, and whatever dies."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from warmcc.daemon.store import claim as claims
from warmcc.daemon.store.claim import LOCK, Claim, claim, take_lock
from warmcc.errors import DaemonError

HOLDER = """
import sys
from pathlib import Path
from warmcc.daemon.store.claim import claim
print(claim(Path(sys.argv[1])).path, flush=True)
sys.stdin.read()
"""
# Comes and goes; whoever has a folder must be alone in it.
RIVAL = """
import os, sys, time
from pathlib import Path
from warmcc.daemon.store import claim as claims
claims.PATIENCE_SECONDS = 0.0
until = time.monotonic() + 2.0
while time.monotonic() < until:
    found = claims.claim(Path(sys.argv[1]))
    os.close(os.open(found.path / "mine", os.O_CREAT | os.O_EXCL))
    time.sleep(0.0005)
    os.unlink(found.path / "mine")
    os.close(found.lock)
"""


@pytest.fixture(autouse=True)
def _short_runtime_dir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARMCC_RUNTIME_DIR", "/tmp/of-a-test")  # it is only named


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def holding(cache: Path, count: int) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(cache)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(count)
    ]
    for one in started:
        assert one.stdout is not None
        yield one, Path(one.stdout.readline().strip())


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_each_has_a_folder_of_its_own_and_what_is_left_is_removed(cache: Path) -> None:
    found = dict(holding(cache, 6))
    assert sorted(found.values()) == [
        cache,
        *(cache / "beside" / str(number) for number in range(1, 6)),
    ]
    for process, path in found.items():
        (path / "result").touch()
        if path in (cache, cache / "beside" / "3"):
            end(process)
    one = claim(cache)
    assert (one.path, one.holder) == (cache, "")
    assert sorted(path.name for path in (cache / "beside").iterdir()) == ["1", "2", "4", "5"], (
        "3 is gone with its owner"
    )
    assert (cache / "result").exists() and (cache / "beside" / "1" / "result").exists()
    for process in found:
        end(process)
    os.close(one.lock)
    again = claim(cache)
    assert list((cache / "beside").iterdir()) == []
    os.close(again.lock)


def test_who_comes_second_knows_who_was_first(cache: Path) -> None:
    one = claim(cache)
    other = claim(cache)
    assert (other.path, other.path.stat().st_mode & 0o777) == (cache / "beside" / "1", 0o700)
    assert f"process {os.getpid()} on " in other.holder and other.holder.endswith(
        "socket /tmp/of-a-test/daemon.sock"
    )
    for held in (one, other):
        os.close(held.lock)


def test_one_that_is_ending_is_waited_for(cache: Path) -> None:
    ((process, _),) = holding(cache, 1)
    with subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -9 {process.pid}"]):
        found: Claim = claim(cache)
    assert found.path == cache
    process.communicate()
    os.close(found.lock)


def test_rivals_never_share(cache: Path) -> None:
    """They remove what others left while these come back."""
    rivals = [
        subprocess.Popen(
            [sys.executable, "-c", RIVAL, str(cache)], stderr=subprocess.PIPE, text=True
        )
        for _ in range(5)
    ]
    said = [rival.communicate(timeout=60)[1] for rival in rivals]
    assert said == [""] * 5


def test_a_planted_lock_is_not_followed(cache: Path, tmp_path: Path) -> None:
    cache.mkdir(mode=0o700)
    (target := tmp_path / "target").write_text("mine")
    (cache / LOCK).symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"):
        claim(cache)
    assert target.read_text() == "mine"


def test_a_file_system_without_locks(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of this machine's is one: the kernel's answer is that of Lustre without its option
    flock.
    """

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(38, os.strerror(38))

    cache.mkdir(mode=0o700)
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(claims.fcntl, "flock", refuse)
    with pytest.raises(
        DaemonError, match=r"cannot be locked \(Function not implemented\)(?s:.*)WARMCC_CACHE_DIR"
    ):
        take_lock(cache / LOCK, "")
    assert len(os.listdir("/proc/self/fd")) == before

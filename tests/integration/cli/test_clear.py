"""``warmcc cache clear --all`` leaves nothing of warmcc's, and nothing else goes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.daemons import Daemon
from warmcc import paths
from warmcc.client.cli.results.clear import clear_all, is_listened_to
from warmcc.errors import RequestError

BUILD = """
import warmcc
warmcc.load_inline(
    "cleared", 'extern "C" int f() { return 42; }', is_python_module=False, no_implicit_headers=True
)
"""


@pytest.fixture
def own() -> Iterator[Daemon]:
    """Folders for a daemon that clients start and commands stop."""
    one = Daemon()
    one.environment |= {
        "WARMCC_AUTOSTART": "1", "WARMCC_PREWARM": "", "WARMCC_PREWARM_IDLE": "",
        "WARMCC_PREWARM_CUDA": "0",
    }  # fmt: skip
    yield one
    run(one, "stop")
    one.discard()


def run(one: Daemon, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "warmcc.client.cli", *words],
        env={**os.environ, **one.environment}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def folders(one: Daemon) -> list[Path]:
    return [place for place in (one.cache_dir, one.state_dir, one.runtime_dir) if place.exists()]


@pytest.mark.slow
def test_nothing_is_left(own: Daemon) -> None:
    subprocess.run([sys.executable, "-c", BUILD], env={**os.environ, **own.environment}, check=True)
    (pid,) = [process.pid for process in own.processes() if "warmcc.daemon" in process.cmdline()]
    assert len(folders(own)) == 3
    done = run(own, "cache", "clear", "--all")
    assert done.returncode == 0, done.stderr
    assert f"stopped the daemon (process {pid})" in done.stdout
    assert f"removed {own.cache_dir / 'store'}\n" in done.stdout
    assert f"removed {own.state_dir / 'log.jsonl'}\n" in done.stdout
    assert "MB freed" in done.stdout or "kB freed" in done.stdout
    assert folders(own) == []
    assert not psutil.pid_exists(pid)
    again = run(own, "cache", "clear", "--all")
    assert (again.returncode, again.stdout) == (0, "there was nothing to remove\n")


def test_files_of_others_stay(own: Daemon) -> None:
    assert run(own, "start").returncode == 0
    (own.cache_dir / "notes.txt").write_text("mine")
    done = json.loads(run(own, "cache", "clear", "--all", "--json").stdout)
    assert done["kept"] == [str(own.cache_dir / "notes.txt")]
    assert folders(own) == [own.cache_dir]
    assert [path.name for path in own.cache_dir.iterdir()] == ["notes.txt"]


def test_another_daemon_in_the_cache(own: Daemon, fresh_daemon: Callable[..., Daemon]) -> None:
    """As in another container: it has a socket elsewhere, so it cannot be told to stop."""
    other = fresh_daemon()
    before = sorted(other.cache_dir.iterdir())
    own.environment["WARMCC_CACHE_DIR"] = str(other.cache_dir)
    done = run(own, "cache", "clear", "--all")
    assert done.returncode == 3
    assert f"another daemon uses {other.cache_dir} (process {other.pid} on" in done.stderr
    assert "nothing was removed" in done.stderr
    assert sorted(other.cache_dir.iterdir()) == before
    assert other.status()["pid"] == other.pid


def test_a_planted_link_is_not_followed(own: Daemon, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    own.cache_dir.symlink_to(tmp_path)
    done = run(own, "cache", "clear", "--all")
    assert done.returncode == 3 and "is a symlink" in done.stderr
    assert (tmp_path / "store").exists()


def test_a_socket_that_somebody_listens_to_is_told_from_a_left_one(own: Daemon) -> None:
    """systemd listens to the socket of a user's unit, whether or not a daemon runs."""
    own.runtime_dir.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(own.socket))
        assert not is_listened_to(own.socket)
        listening.listen()
        assert is_listened_to(own.socket)
        assert not is_listened_to(own.socket.with_name("other"))
    assert own.socket.exists() and not is_listened_to(own.socket)
    done = run(own, "cache", "clear", "--all")  # a dead daemon's socket
    assert done.returncode == 0 and f"removed {own.socket}\n" in done.stdout


def test_the_daemon_of_the_system_is_left_alone(
    own: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in own.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(paths, "BOOTED", own.folder)
    assert run(own, "start").returncode == 0
    with pytest.raises(RequestError, match=r"service of the system.*\n.*--system --for run"):
        clear_all()
    assert len(folders(own)) == 3 and run(own, "status").returncode == 0


def test_it_goes_with_clear_alone(own: Daemon) -> None:
    done = run(own, "cache", "prune", "--all")
    assert done.returncode == 2 and "--all goes with: warmcc cache clear" in done.stderr
    assert folders(own) == []


def test_every_file_of_a_warm_daemon_is_known(warm: Daemon) -> None:
    """A new kind of file has to be named in ``warmcc.paths``, or it would be left behind."""
    known = (
        (warm.cache_dir, paths.CACHE_NAMES),
        (warm.state_dir, paths.STATE_NAMES),
        (warm.runtime_dir, paths.RUNTIME_NAMES),
    )
    for place, names in known:
        unknown = {path.name for path in place.iterdir() if not any(map(path.match, names))}
        assert unknown == set()

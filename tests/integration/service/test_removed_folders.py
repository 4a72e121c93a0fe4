"""Somebody removes folders under a running daemon, to clear the cache: it ends, and the next call
starts one that makes all of it again. Without its folders it would leave each call to stock torch.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import warmcc
from tests.support.daemons import Daemon

CALL = """
import sys, warnings
warnings.simplefilter("error")
import warmcc
from warmcc.client.connection import session
number = int(sys.argv[1])
functions = warmcc.cfunctions(f"int f(void) {{ return {number}; }}", "int f(void)")
assert functions.f() == number
print(session.current(autostart=False).welcome.pid)
"""


def call(daemon: Daemon, number: int) -> int:
    """The process that compiled for a new process of the user's."""
    done = subprocess.run(
        [sys.executable, "-c", CALL, str(number)], text=True, capture_output=True, timeout=120,
        env={**daemon.environment, "WARMCC_AUTOSTART": "1", "WARMCC_PREWARM": "",
             "WARMCC_PREWARM_IDLE": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def removed(daemon: Daemon) -> None:
    shutil.rmtree(daemon.cache_dir)


def replaced(daemon: Daemon) -> None:
    daemon.cache_dir.rename(daemon.folder / "moved")
    shutil.copytree(daemon.folder / "moved", daemon.cache_dir)


def cleaned(daemon: Daemon) -> None:
    """Of temporary files only."""
    shutil.rmtree(daemon.cache_dir / "tmp")


def cooled(daemon: Daemon) -> None:
    """Of what is warm only."""
    shutil.rmtree(daemon.cache_dir / "profiles")


@pytest.mark.parametrize("change", [removed, replaced, cleaned, cooled])
def test_the_next_call_has_a_new_daemon(
    fresh_daemon: Callable[..., Daemon], change: Callable[[Daemon], None]
) -> None:
    first = fresh_daemon()
    assert call(first, 1) == first.pid
    change(first)
    assert first.process is not None
    assert first.process.wait(20) == 0
    assert "was removed" in first.log()
    with following(first) as second:
        assert second != first.pid
        assert call(first, 2) == second


@contextmanager
def following(daemon: Daemon) -> Iterator[int]:
    """The daemon that a call starts, until the block ends."""
    pid = call(daemon, 1)
    try:
        yield pid
    finally:
        Daemon.adopted(str(daemon.folder), pid).stop()


def test_a_daemon_with_its_folders_stays(fresh_daemon: Callable[..., Daemon]) -> None:
    """The store's own folder is made again."""
    one = fresh_daemon()
    assert call(one, 1) == one.pid
    shutil.rmtree(one.cache_dir / "store")
    time.sleep(3)
    assert call(one, 1) == one.pid
    assert one.running()


def test_a_daemon_without_its_programs_ends(
    fresh_daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    """Its virtual environment was removed, and another one has the same socket."""
    package = Path(warmcc.__file__).parent
    shutil.copytree(package, tmp_path / "own" / "warmcc", ignore=shutil.ignore_patterns("*.pyc"))
    one = fresh_daemon()
    one.stop()
    code = f"import sys; sys.path.insert(0, {str(tmp_path / 'own')!r}); "
    one.start([sys.executable, "-c", code + "from warmcc.daemon.main import main; main()"])
    assert call(one, 1) == one.pid
    time.sleep(2.5)
    assert one.running()
    shutil.rmtree(tmp_path / "own")
    assert one.process is not None
    assert one.process.wait(20) == 0
    assert f"{tmp_path}/own/warmcc/daemon/serve/housekeeping.py was removed" in one.log()

"""A prebuild that is killed at random moments, and goes on: no variant is compiled twice, and none
is missing."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.daemons import Daemon
from tests.support.prebuilding import SOURCE, answers_of, command, compiled, run, spec, wanted

SEED = int(os.environ.get("WARMCC_SEED", "20261121"))
SLOWER = f"#include <map>\n#include <string>\n{SOURCE}"


def killed_after(daemon: Daemon, path: Path, output: Path, seconds: float) -> bool:
    """Whether the command was killed before its end."""
    process = subprocess.Popen(
        command(path, "-o", output), env={**os.environ, **daemon.environment},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait() != 0


def goes_on(
    daemon: Daemon, tmp_path: Path, name: str, moments: int, tiles: list[int], longest: float
) -> None:
    stages = [1, 2, 3]
    chance = random.Random(SEED)
    output, kills, whole = tmp_path / "out", 0, 0
    path = spec(tmp_path, name, tiles, stages, SLOWER)
    while kills < moments:
        if killed_after(daemon, path, output, chance.uniform(0.2, longest)):
            kills += 1
        else:  # it was whole: begin with something new
            assert answers_of(output, name) == wanted(tiles, stages)
            whole, longest = whole + 1, max(1.0, longest / 2)
            new = SLOWER.replace("static long known", f"static long turn = {whole}, known")
            path = spec(tmp_path, name, tiles, stages, new)
    run(daemon, path, "-o", output)
    assert answers_of(output, name) == wanted(tiles, stages)
    assert sorted(os.listdir(output)) == [name], "no draft is left"
    twice = {name: n for name, n in compiled(daemon.state_dir, name).items() if n > 1}
    assert twice == {}


def test_it_goes_on_after_a_kill(daemon: Daemon, tmp_path: Path) -> None:
    goes_on(daemon, tmp_path, "killed_twice", 2, [1, 2], 2.0)


@pytest.mark.slow
def test_it_goes_on_after_ten_kills(fresh_daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    goes_on(fresh_daemon(pch=False, ccache=False), tmp_path, "killed", 10, list(range(1, 11)), 6.0)

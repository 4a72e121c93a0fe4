"""No answer is another than a fresh compile's, whatever changed since (wrong_hits.py).

Each fault that there was has its scenario. WARMCC_MUTATIONS says how many random changes are tried
beside them.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any

import pytest

from tests.support import ROOT
from tests.support.fault.mutations import SCENARIOS
from tests.support.fault.wrong_hits import CLOCK

MUTATIONS = int(os.environ.get("WARMCC_MUTATIONS", "40"))
_NAMESPACE = ["unshare", "--mount", "--propagation", "private"]


def _prefix() -> list[str]:
    """A mount namespace of one's own: as root, or where users may make namespaces of users."""
    prefix = _NAMESPACE if os.getuid() == 0 else [*_NAMESPACE, "--map-root-user"]
    tried = subprocess.run(
        [*prefix, "mount", "-t", "tmpfs", "tmpfs", "/usr/local/include"], capture_output=True
    )
    if tried.returncode != 0:
        pytest.skip(
            f"needs a mount namespace, for folders of the system: {tried.stderr.decode().strip()}"
        )
    return prefix


def _command(*arguments: str) -> list[str]:
    return [*_prefix(), sys.executable, "-m", "tests.support.fault.wrong_hits", *arguments]


def _run(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(_command(*arguments), capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-5000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """Plays a scenario after the other, all with one daemon."""
    errors = tmp_path_factory.mktemp("player") / "errors"
    with open(errors, "w") as log, subprocess.Popen(
        _command("scenarios"), cwd=ROOT, text=True, bufsize=1, stderr=log,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as one:  # fmt: skip
        yield one
        assert one.stdin is not None
        one.stdin.close()
        assert one.wait(60) == 0, errors.read_text()[-5000:]


SLOW = frozenset(
    (CLOCK, "a library on an earlier path", "ccache brings back what a guard rejected")
)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in SLOW else [])
        for name in (*SCENARIOS, CLOCK)
    ],
)
def test_a_fault_that_there_was(name: str, player: subprocess.Popen[str]) -> None:
    assert player.stdin is not None and player.stdout is not None
    player.stdin.write(f"{name}\n")
    told: dict[str, Any] = json.loads(player.stdout.readline() or '{"failed": "no answer"}')
    assert "failed" not in told, told["failed"]
    assert told.get("miss") or told.get("left to stock"), told
    assert not told.get("clock set back, too late"), told


@pytest.mark.slow
def test_another_processor_misses_where_a_flag_names_this_one() -> None:
    assert _run("processor") == {
        "before": ["miss", "hit"],
        "another": "miss",
        "without the flag": "hit",
    }


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_random_changes() -> None:
    """On every core a fuzzer of its own, with its own daemon, seed and mounts."""
    fuzzers = min(os.cpu_count() or 1, MUTATIONS)
    seed = random.SystemRandom().randrange(1 << 30)
    shares = [MUTATIONS // fuzzers + (number < MUTATIONS % fuzzers) for number in range(fuzzers)]
    told: Counter[str] = Counter()
    with ThreadPoolExecutor(fuzzers) as executor:
        seeds = range(seed, seed + fuzzers)
        for one in executor.map(_run, repeat("random"), map(str, shares), map(str, seeds)):
            print(json.dumps(one))
            told.update({outcome: one.get(outcome, 0) for outcome in ("mutations", "hit", "miss")})
    assert told["mutations"] == MUTATIONS and told["hit"] and told["miss"], told

"""Fork servers whose own system calls fail: the client is told, the server serves on, and no other
process is touched.

All of it runs in a PID namespace: a fork server that signalled more than its own children would end
everything there, and nothing outside.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT
from tests.support.fault.forking import FUNCTIONS

_ROOT = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
_USER = ["unshare", "--user", "--map-current-user", *_ROOT[1:]]


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that other users may enter."""
    made = Path(tempfile.mkdtemp(prefix="wcc-forks-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def play(scenario: str, folder: Path) -> dict[str, Any]:
    front = _ROOT if os.getuid() == 0 else _USER
    if subprocess.run([*front, "true"], capture_output=True).returncode != 0:
        pytest.skip(
            "needs a PID namespace, which this user may not make here: the unfixed "
            "server kills all processes"
        )
    command = [
        "timeout",
        "-s",
        "KILL",
        "50",
        *front,
        sys.executable,
        "-m",
        "tests.support.fault.forking",
        scenario,
        str(folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found.pop("bystander") == "alive"
    return found


def test_each_call_that_fails_is_told_and_harms_no_other_process(folder: Path) -> None:
    found = play("injected", folder)
    assert found["after"] == ["status 0"], "the next unit is served as if nothing had been"
    outcomes = {call: set(seen) for call, seen in found["outcomes"].items()}
    assert {call.split()[0] for call in outcomes} == set(FUNCTIONS), "every function is called"
    assert outcomes["fork EAGAIN"] == {"cannot fork: EAGAIN"}
    assert len(found["outcomes"]["fork EAGAIN"]) == 4, (
        "both forks fail, with and without a fork ahead of need"
    )
    for call in (
        "accept4 EMFILE",
        "accept4 ENFILE",
        "accept4 ENOMEM",
        "accept4 EINTR",
        "recv EINTR",
        "wait4 EINTR",
    ):
        assert outcomes[call] == {"status 0"}, call
    # Ahead of need, the fork may say that it waits before it is killed: the unit has another one
    # then.
    assert (
        "cannot fork: EMFILE"
        in outcomes["pidfd_open EMFILE"]
        <= {"cannot fork: EMFILE", "status 0"}
    )
    assert outcomes["wait4 ECHILD"] == {"cannot fork: ECHILD"}
    allowed = {"status 0", "status 99", "hung up"}
    for call, seen in outcomes.items():
        assert seen <= allowed | {f"cannot fork: {call.split()[1]}"}, call


@pytest.mark.skipif(
    os.getuid() != 0, reason="only root may be a user of whom it knows all processes"
)
def test_a_user_who_may_have_no_more_processes(folder: Path) -> None:
    found = play("limited", folder)
    assert found == {
        "none": "cannot fork: EAGAIN",
        "middleman": "cannot fork: EAGAIN",
        "both": "status 0",
    }


def test_no_descriptor_is_left_for_a_connection(folder: Path) -> None:
    found = play("crowded", folder)
    assert found["outcome"] == "status 0"
    assert found["asked"] < 1000, "it waits before it asks again"

"""``warmcc warm``: it waits until the daemon has nothing left to make."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.cli.test_cli import data, warmcc
from tests.support.daemons import Daemon
from warmcc import record
from warmcc.client.cli import ahead


def test_where_nothing_is_left(fresh_daemon: Callable[..., Daemon]) -> None:
    daemon = fresh_daemon(pch=False, cuda_warm=False)
    done = warmcc(daemon, "warm")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "warm: precompiled headers: 0; sets of flags for CUDA: 0\n"


def test_it_does_not_wait_for_ever(fresh_daemon: Callable[..., Daemon]) -> None:
    daemon = fresh_daemon(pch=True, prewarm=[""], cuda_warm=False)
    done = warmcc(daemon, "warm", "--timeout", "0")
    assert done.returncode == 5
    assert done.stderr.startswith("warmcc: not warm yet: ")
    assert "its log is" in done.stderr


def test_flags_that_do_not_compile(fresh_daemon: Callable[..., Daemon]) -> None:
    daemon = fresh_daemon(pch=False, cuda_warm=False)
    done = warmcc(daemon, "warm", "--flags=-fno-such-flag")
    assert done.returncode == 1
    assert "an extension with '-fno-such-flag' could not be built" in done.stderr
    assert "unrecognized command-line option" in done.stderr
    unclosed = warmcc(daemon, "warm", "--flags='-O3")
    assert unclosed.returncode == 3
    assert "No closing quotation" in unclosed.stderr


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_what_calls_with_these_flags_need_is_made(fresh_daemon: Callable[..., Daemon]) -> None:
    daemon = fresh_daemon(pch=True, cuda_warm=False)
    words = [sys.executable, "-m", "warmcc.client.cli", "warm", "--flags=-O1 -DWARMED"]
    done = subprocess.run(
        words, env={**os.environ, **daemon.environment}, capture_output=True, text=True,
        timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    profiles = data(daemon, "profiles")["profiles"]
    assert {profile["state"] for profile in profiles} == {"ready"}
    assert any("-O1" in profile["flags"] for profile in profiles)
    assert f"precompiled headers: {len(profiles)};" in done.stderr


def logged(file: Path, *calls: dict[str, str]) -> Path:
    """A daemon's log with these calls; each has its inputs."""
    lines = (
        record.Line(
            0.0, "INFO", "test", "built", record.Answered("a", "k", "miss", 1.0, inputs=one)
        )
        for one in calls
    )
    file.write_bytes(b"".join(record.encode(line) + b"\n" for line in lines) + b'{"cut')
    return file


def test_what_the_log_of_another_machine_asked_for(tmp_path: Path) -> None:
    """Several times, and the most frequent first."""
    often = {"extra_cflags": "['-O1', '-DKEY=…']", "extra_cuda_cflags": "['-O3', '-lineinfo']"}
    log = logged(
        tmp_path / "log.jsonl", {"extra_cflags": "['-O1']"}, often, often,
        {"extra_cflags": "['-Og']"}, {"extra_cflags": "sha256 0123456789ab"}, {"name": "a"},
    )  # fmt: skip
    logged(tmp_path / "log.jsonl.1", often)  # its older part
    assert ahead._of_log(log) == [("flags", "-O1"), ("cuda_flags", "-O3 -lineinfo")]


def test_warm_from_a_log(daemon: Daemon, tmp_path: Path) -> None:
    call = {"extra_cflags": "['-fno-such-flag']"}
    done = warmcc(daemon, "warm", "--from-log", str(logged(tmp_path / "log", call, call)))
    assert done.returncode == 1, done.stderr
    assert "for extra_cflags: -fno-such-flag" in done.stdout + done.stderr
    for content, said in ((None, "is no file"), ("{}\n", "has no calls")):
        file = tmp_path / "other"
        if content is not None:
            file.write_text(content)
        done = warmcc(daemon, "warm", "--from-log", str(file))
        assert (done.returncode, done.stderr.count("\n")) == (3, 1)
        assert said in done.stderr and "log.jsonl" in done.stderr

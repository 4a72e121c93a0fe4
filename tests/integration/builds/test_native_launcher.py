"""The native launcher comes from a real daemon, and is done without where it cannot be had."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.daemons import Daemon

FETCH = "from warmcc.client.kernel import native; print(native.module())"


def fetched(daemon: Daemon, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", FETCH], env={**daemon.environment, **variables}, text=True,
        capture_output=True, check=True, timeout=120,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.strip()


def test_it_is_compiled_once_for_all_processes(daemon: Daemon) -> None:
    before = daemon.status()["requests"]
    assert {fetched(daemon) for _ in range(3)} == {fetched(daemon)}
    assert fetched(daemon).startswith("<module 'warmcc_launch'")
    after = daemon.status()["requests"]
    assert after["hits"] - before["hits"] >= 4


@pytest.mark.parametrize("compiler", ["false", "/nonexistent/cc", "cc -nostdinc"])
def test_without_a_compiler_launches_stay_pythons(daemon: Daemon, compiler: str) -> None:
    counted = daemon.status()["requests"]["fallbacks"]
    assert fetched(daemon, CC=compiler) == "None"
    after = daemon.status()["requests"]["fallbacks"]
    name = "kernel: no native launcher"
    assert after.get(name, 0) == counted.get(name, 0) + 1


def test_without_a_daemon_none_is_asked_for(daemon: Daemon) -> None:
    assert fetched(daemon, WARMCC_OFFLINE="1") == "None"

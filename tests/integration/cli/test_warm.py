"""``warmcc warm``: it waits until the daemon has nothing left to make."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.integration.cli.test_cli import data, warmcc
from tests.support.daemons import Daemon


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
    done, started = None, time.monotonic()
    while done is None or (done.returncode == 5 and time.monotonic() - started < 900):
        done = warmcc(daemon, "warm", "--flags=-O1 -DWARMED", "--timeout", "40")
    assert done.returncode == 0, done.stderr
    (profile,) = data(daemon, "profiles")["profiles"]
    assert profile["state"] == "ready"
    assert "-O1" in profile["flags"]
    assert "precompiled headers: 1;" in done.stderr

"""Commands of a build: the session and the priority that they run with."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from warmcc.daemon.process import Runner


def run(command: str, *, aside: bool) -> list[str]:
    """What a shell command prints, in lines."""
    with contextlib.closing(Runner()) as runner:
        argv = ["/bin/sh", "-c", command]
        done = asyncio.run(runner.run(argv, cwd=Path("/"), environment=dict(os.environ), timeout=60.0, aside=aside))
    assert done.code == 0
    return done.output.splitlines()


@pytest.mark.parametrize(("aside", "more"), [(False, 0), (True, 10)])
def test_what_nobody_waits_for_gives_way(aside: bool, more: int) -> None:
    ours = os.nice(0)
    assert run("nice", aside=aside) == [str(min(19, ours + more))]


@pytest.mark.skipif(not os.path.exists("/proc/self/autogroup"), reason="this kernel does not group by session")
@pytest.mark.parametrize(("aside", "nice"), [(False, 0), (True, 10)])
def test_where_sessions_have_shares_the_session_gives_way(aside: bool, nice: int) -> None:
    (group,) = run("cat /proc/self/autogroup", aside=aside)
    assert group.endswith(f" nice {nice}")
    ours = Path("/proc/self/autogroup").read_text().split()  # empty where we are in no session's group
    assert group.split()[0] not in ours


def test_words_stay_words() -> None:
    assert run("printf '%s\\n' 'a b' \"$HOME\" '$x'", aside=True) == ["a b", os.environ["HOME"], "$x"]

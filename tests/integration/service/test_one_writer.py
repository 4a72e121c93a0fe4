"""Two daemons with one cache, as in two containers with one home: each builds rightly, and none
touches the other's.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import zmq

from tests.support.anywhere import NAMESPACES, why_not
from tests.support.calls import Connection, load, module_source, request
from tests.support.daemons import Daemon
from warmcc.protocol import Built, Stop
from warmcc.request import Request

Context = zmq.Context[zmq.Socket[bytes]]
SLOW = '#include <regex>\nstatic std::regex pattern("a+");\n'  # about a second of work


@contextmanager
def daemon_on(cache: Path, *prefix: str) -> Iterator[Daemon]:
    """A daemon with a runtime folder of its own, on this cache."""
    one = Daemon(pch=False, ccache=False)
    one.environment["WARMCC_CACHE_DIR"] = str(cache)
    one.prefix = list(prefix)
    try:
        yield one.start()
        if prefix:  # the process here only waits for the daemon, and passes no signal on
            one.ask(Stop(1))
            assert one.process is not None and one.process.wait(15) == 0
        one.stop()
    finally:
        one.discard()


@pytest.fixture
def cache() -> Iterator[Path]:
    folder = Path(Daemon().folder)
    yield folder / "cache"
    shutil.rmtree(folder)


def unfinished(cache: Path) -> list[Path]:
    """What a daemon has under way; its owner is dead, or in another container."""
    places = (
        "store/staging/4194304-1-abc",
        "tmp/4194304-1",
        "profiles/unfinished",
        "cuda/servers/one",
    )
    for place in places:
        (cache / place).mkdir(parents=True)
        (cache / place / "work").touch()
    return [cache / place / "work" for place in places]


def text(daemon: Daemon, *words: str) -> str:
    command = [sys.executable, "-m", "warmcc.client.cli", *words]
    done = subprocess.run(
        command, env={"PATH": "/usr/bin:/bin", **daemon.environment}, capture_output=True, text=True
    )
    return done.stdout + done.stderr


@pytest.mark.slow
def test_the_second_daemon_has_a_store_of_its_own(cache: Path, context: Context) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(daemon_on(cache))
        work = unfinished(cache)
        second = stack.enter_context(daemon_on(cache))
        assert all(path.exists() for path in work), "what the first has under way was removed"
        (own,) = list((cache / "beside").iterdir())
        for daemon, place in ((first, cache), (second, own)):
            answer = Connection(daemon, context).build(request())
            assert isinstance(answer, Built) and answer.outcome == "miss"
            assert Path(answer.path).is_relative_to(place / "store")
            assert load(answer, "tiny").answer() == 42
        assert first.status()["cache"] == {"path": str(cache), "held_by": ""}
        holder = second.status()["cache"]["held_by"]
        assert holder.startswith(f"process {first.pid} on ") and holder.endswith(
            f"socket {first.socket}"
        )
        assert f"another daemon writes to the cache ({holder})" in second.log()
        for words in (["status"], ["doctor"]):
            assert f"process {first.pid} on " in text(second, *words)
            assert "another daemon" not in text(first, *words)
    with daemon_on(cache):  # alone: what nobody owns goes
        assert not any(path.exists() for path in work)
        assert list((cache / "beside").iterdir()) == []


@pytest.mark.slow
def test_the_second_daemon_of_an_operator_reads_the_shared_store(
    fresh_daemon: Callable[..., Daemon], context: Context, tmp_path: Path
) -> None:
    """It does not write there, and removes nothing of what the first has under way."""
    shared = tmp_path / "shared"
    shared.mkdir()
    first = fresh_daemon(shared_store=shared, shared_publish=True)
    assert isinstance(Connection(first, context).build(request()), Built)
    (work := shared / "staging" / "4194304-1-abc").mkdir()
    second = fresh_daemon(shared_store=shared, shared_publish=True)
    assert work.exists()
    connection = Connection(second, context)
    answer = connection.build(request())
    assert isinstance(answer, Built) and answer.outcome == "hit"
    assert isinstance(connection.build(request(cpp_sources=[module_source(7)])), Built)
    told = second.status()["shared_store"]
    assert (told["found"], told["offered"], told["refused"]) == (1, 0, None)


@pytest.mark.slow
def test_two_process_namespaces_build_at_the_same_time(cache: Path, context: Context) -> None:
    """The processes of one look dead to the other."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with daemon_on(cache) as first:
        staging = cache / "store" / "staging"
        connection = Connection(first, context)
        number = 0
        for _ in range(2):
            asked = {}
            for _ in range(4):
                number += 1
                asked[connection.ask(slow(number))] = number
            deadline = time.monotonic() + 30
            while not any(path.is_dir() for path in staging.iterdir()):
                assert time.monotonic() < deadline, first.log()
                time.sleep(0.001)
            with daemon_on(cache, *NAMESPACES) as second:
                theirs = Connection(second, context).build(slow(number))
                assert isinstance(theirs, Built) and load(theirs, "tiny").answer() == number
                for _ in range(4):
                    answer = connection.answer()
                    assert isinstance(answer, Built), answer
                    assert load(answer, "tiny").answer() == asked[answer.id]
        assert list(staging.iterdir()) == []


def slow(number: int) -> Request:
    return request(cpp_sources=[SLOW + module_source(number)])

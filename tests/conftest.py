"""Fixtures for every test that needs a daemon: one for the session, or a fresh one with settings of
its own.
"""

from __future__ import annotations

import argparse
import math
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
import zmq

from tests.support import cuda
from tests.support.daemons import Daemon, running
from tests.support.sharing import RUN, Run

_LOG_LINES = 60


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--off",
        default="",
        metavar="SWITCH",
        help="run with this accelerator switched off (make test-off)",
    )
    parser.addoption(
        "--within",
        type=float,
        metavar="SECONDS",
        help="skip the tests that would begin later than this (make quick)",
    )
    parser.addoption(
        "--part",
        type=_part,
        metavar="I/N",
        help="of the tests that are marked slow or ci run each Nth, from the Ith on",
    )


def _part(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    if not (part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a part, such as 1/4")
    return int(part), int(parts)


_UNTIL: pytest.StashKey[float] = pytest.StashKey()
_WRONG: pytest.StashKey[list[str]] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[RUN] = Run(getattr(config, "workerinput", {}).get("run"))
    if seconds := config.getoption("--within"):
        config.stash[_UNTIL] = time.monotonic() + seconds
    if switch := config.getoption("--off"):
        Daemon.switched_off = switch


@pytest.fixture(scope="session", autouse=True)
def _nobody_elses_daemon() -> Iterator[None]:
    """No test reaches the daemon, the store or the settings of the person who runs the tests."""
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell starts jobs in the background without it
    folder = tempfile.mkdtemp(prefix="wcc-none-", dir="/tmp")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("RUNTIME_DIR", "CACHE_DIR", "STATE_DIR"):
            patch.setenv(f"WARMCC_{name}", f"{folder}/{name.lower()}")
        patch.setenv("WARMCC_CONFIG", f"{folder}/config.toml")
        patch.setenv("WARMCC_AUTOSTART", "0")
        patch.setenv(
            "CCACHE_DIR", f"{folder}/ccache"
        )  # what an earlier run left there would make tests easier
        yield
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def daemon() -> Iterator[Daemon]:
    """The daemon that all tests share which neither change nor kill it. At the end it must leave no
    process.
    """
    one = Daemon()
    running.append(one)
    try:
        yield one.start()
        one.stop()
    finally:
        running.remove(one)
        one.discard()


@pytest.fixture(scope="session", autouse=True)
def _warming(request: pytest.FixtureRequest, _nobody_elses_daemon: None) -> None:
    """Start the daemons that warm up with the session, so that they do while other tests run."""
    run = request.config.stash[RUN]
    if any(_needs("warm", item) for item in request.session.items):
        run.warm()
    if any(_needs("warm_cuda", item) for item in request.session.items) and cuda.why_not() is None:
        run.warm_cuda()


@pytest.fixture(scope="session")
def warm(pytestconfig: pytest.Config) -> Daemon:
    """A daemon that has warmed up for the default flags: precompiled headers, and what all
    extensions share. All processes of the run share it: a test that counts what it did is marked
    ``alone``.
    """
    one = pytestconfig.stash[RUN].warm()
    one.wait_for_profiles()
    return one


def _needs(fixture: str, item: pytest.Item) -> bool:
    return fixture in getattr(item, "fixturenames", ())


def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.monotonic() > item.config.stash.get(_UNTIL, math.inf):
        pytest.skip("the time of --within is over")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Tests with the daemon of ``warm`` run together, but for those that are marked ``alone``."""
    if not _needs("warm", item):
        return (yield)
    alone = item.get_closest_marker("alone") is not None
    with item.config.stash[RUN].using("warm", alone=alone):
        return (yield)


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    """A ZeroMQ context that goes with the test, and its sockets with it, also when the test
    fails.
    """
    one: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield one
    one.destroy(linger=0)


@pytest.fixture
def fresh_daemon() -> Iterator[Callable[..., Daemon]]:
    """``fresh_daemon(**settings)`` starts a daemon of its own, with an empty store; it ends with
    the test.

    A test may kill it, stop it and start it again (``kill``, ``stop``, ``start``).
    """
    made: list[Daemon] = []

    def make(**settings: Any) -> Daemon:
        started = Daemon(**settings)
        made.append(started)
        running.append(started)
        return started.start()

    try:
        yield make
        for one in made:
            one.stop()
    finally:
        for one in made:
            running.remove(one)
            one.discard()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """pytest-xdist starts another process: it belongs to this run."""
    node.workerinput["run"] = str(node.config.stash[RUN].folder)


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """The process that started the run ends what all of them shared."""
    yield
    if not hasattr(session.config, "workerinput") and (wrong := session.config.stash[RUN].end()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        session.config.stash[_WRONG] = wrong


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.stash[RUN].remove()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for text in config.stash.get(_WRONG, []):
        terminalreporter.section("a daemon that tests shared", red=True)
        terminalreporter.write_line(text)


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Modules that need a daemon which warms up come last: it does so while the others run. Where
    several processes run tests, a module is of one, unless its tests stand alone; tests that count
    what the daemon with CUDA did are of one, too.
    """
    if config.option.part is not None:
        first, parts = config.option.part
        dear = [item for item in items if any(map(item.get_closest_marker, ("slow", "ci")))]
        left_out = set(dear) - set(dear[first - 1 :: parts])
        items[:] = [item for item in items if item not in left_out]
    patient = {item.path: 1 for item in items if _needs("warm", item)}
    patient |= {item.path: 2 for item in items if _needs("warm_cuda", item)}
    items.sort(key=lambda item: patient.get(item.path, 0))
    for item in items:
        if item.get_closest_marker("spread") is None:
            group = "warm_cuda" if _needs("warm_cuda", item) else item.path.stem
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: list[str]) -> None:
    """A pytest-xdist that does not know the groups would have each process start every daemon."""
    grouped = node.config.getoption("dist") == "loadgroup"
    if grouped and ids and not any("@" in name for name in ids):
        pytest.exit("this pytest-xdist does not keep the tests of a module together", returncode=4)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the daemons said below each failure."""
    report = yield
    if report.failed:
        for one in running:
            lines = one.log().splitlines()[-_LOG_LINES:]
            report.sections.append((f"log of the daemon in {one.folder}", "\n".join(lines)))
    return report


@pytest.fixture
def no_session_of_before() -> Iterator[None]:
    """No connection of this process outlives a test, or is there before it."""
    from warmcc.client.connection import session

    session.forget()
    yield
    session.forget()

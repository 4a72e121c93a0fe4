"""What a daemon wrote down, as ``warmcc why``, ``stats``, ``logs`` and ``trace`` tell it, also
after its end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest
import zmq

from tests.support.calls import Connection, load_request, module_source, request
from tests.support.commands import warmcc
from tests.support.daemons import Daemon
from warmcc import paths, record
from warmcc.protocol import Built, Cancel, Declined, Failed

Context = zmq.Context[zmq.Socket[bytes]]


@pytest.mark.slow
def test_why(fresh_daemon: Callable[..., Daemon], context: Context) -> None:
    daemon = fresh_daemon(ccache=False)
    connection = Connection(daemon, context)
    source, header = daemon.folder / "a.cpp", daemon.folder / "a.h"
    header.write_text("#define N 1\n")
    source.write_text(f'#include "a.h"\n{module_source(name="filed")}')
    filed = load_request([source], name="filed", module_name="filed")

    assert isinstance(connection.build(request()), Built)
    assert "nothing was built before it" in warmcc(daemon, "why", "tiny")
    assert isinstance(connection.build(request(extra_cflags=["-DX"])), Built)
    assert "extra_cflags: new, ['-DX']" in warmcc(daemon, "why", "tiny")
    assert isinstance(connection.build(request(extra_cflags=["-DY"])), Built)
    assert "extra_cflags: was ['-DX'], is ['-DY']" in warmcc(daemon, "why", "tiny")
    assert isinstance(connection.build(request(cpp_sources=[module_source(1)])), Built)
    assert "cpp_sources: different text" in warmcc(daemon, "why", "tiny")
    assert isinstance(connection.build(filed), Built)
    header.write_text("#define N 2\n")
    assert isinstance(connection.build(filed), Built)
    assert f"a result existed under its key, but {header} has changed" in warmcc(
        daemon, "why", "filed"
    )
    key = json.loads(warmcc(daemon, "why", "filed", "--json"))["key"]
    daemon.stop()
    assert f"{header} has changed" in warmcc(daemon, "why", key[:10])
    said = warmcc(daemon, "why", "nothing_like_it", code=3)
    assert "no logged request matches 'nothing_like_it'; known: filed, tiny" in said


def test_stats_and_logs(fresh_daemon: Callable[..., Daemon], context: Context) -> None:
    daemon = fresh_daemon()
    connection = Connection(daemon, context)
    assert isinstance(connection.build(request()), Built)
    assert isinstance(connection.build(request()), Built)
    assert isinstance(connection.build(request(cpp_sources=["int x"])), Failed)
    assert isinstance(connection.build(request(extra_cflags=["@flags"])), Declined)
    connection.send(
        Cancel(connection.ask(request(cpp_sources=["#include <regex>\n" + module_source(7)])))
    )
    assert isinstance(connection.build(request()), Built)
    daemon.stop()
    with open(daemon.state_dir / paths.STRUCTURED_LOG, "a") as file:
        file.write('{"time": 1, "lev\nnothing of ours\n')  # a line that a crash cut

    (figures,) = json.loads(warmcc(daemon, "stats", "--json"))["periods"].values()
    assert figures["requests"] == 6
    assert figures["outcomes"] == {"miss": 1, "hit": 2, "failed": 1, "declined": 1, "cancelled": 1}
    assert "1 left to stock: unsupported flags: @flags" in warmcc(daemon, "stats")
    assert "invalid time 'soon'" in warmcc(daemon, "stats", "--since", "soon", code=3)

    logged = warmcc(daemon, "logs").splitlines()
    assert "answered: tiny: failed" in "".join(logged)
    assert len(warmcc(daemon, "logs", "-n", "2").splitlines()) == 2
    assert warmcc(daemon, "logs", "--level", "error") == ""
    assert all(
        record.decode(line.encode()) for line in warmcc(daemon, "logs", "--json").splitlines()
    )


@pytest.mark.slow
def test_logs_follow(fresh_daemon: Callable[..., Daemon], context: Context) -> None:
    daemon = fresh_daemon()
    command = [sys.executable, "-m", "warmcc.client.cli", "logs", "-f", "-n", "1"]
    with subprocess.Popen(
        command, env={**os.environ, **daemon.environment}, stdout=subprocess.PIPE, text=True
    ) as followed:
        assert followed.stdout is not None
        assert "serves" in followed.stdout.readline()
        assert isinstance(Connection(daemon, context).build(request()), Built)
        assert "built tiny" in followed.stdout.readline()
        followed.terminate()


@pytest.mark.slow
def test_trace(fresh_daemon: Callable[..., Daemon], context: Context) -> None:
    daemon = fresh_daemon()
    assert isinstance(Connection(daemon, context).build(request()), Built)
    events = json.loads(warmcc(daemon, "trace", "tiny"))["traceEvents"]
    steps = [event["cat"] for event in events if event["ph"] == "X"]
    assert [step for step in steps if step != "wait"] == ["plan", "compile", "link", "publish"]
    assert all(event["dur"] >= 0 for event in events if event["ph"] == "X")
    picture = daemon.folder / "trace.svg"
    warmcc(daemon, "trace", "tiny", "--svg", str(picture))
    drawn = ElementTree.parse(picture).getroot()
    assert len(drawn.findall("{http://www.w3.org/2000/svg}rect")) == len(steps) + 1
    assert "compile main.o" in picture.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("place", ["readonly", "full"])
def test_a_log_that_cannot_be_written_stops_no_build(
    place: str, fresh_daemon: Callable[..., Daemon], context: Context
) -> None:
    daemon = fresh_daemon()
    file = daemon.state_dir / paths.STRUCTURED_LOG
    daemon.stop()
    file.unlink()
    file.symlink_to("/dev/full") if place == "full" else file.mkdir()
    daemon.start()
    assert isinstance(Connection(daemon, context).build(request()), Built)

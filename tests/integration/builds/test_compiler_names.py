"""One compiler under several names has one set of objects and precompiled headers."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import zmq

from tests.support.calls import Connection, request
from tests.support.daemons import Daemon
from warmcc.protocol import Built


def outcome(connection: Connection, **variables: str) -> str:
    wanted = request(
        cpp_sources=["int named() { return 1; }"],
        environment={**request().environment, **variables},
    )
    answer = connection.build(wanted)
    assert isinstance(answer, Built), answer
    return answer.outcome


def changed(after: dict[str, Any], before: dict[str, Any]) -> dict[str, int]:
    names = ("compiles", "units_reused", "links")
    return {name: after[name] - before[name] for name in names}


def test_nothing_is_compiled_again(
    daemon: Daemon, context: zmq.Context[zmq.Socket[bytes]], tmp_path: Path
) -> None:
    connection = Connection(daemon, context)
    assert outcome(connection) == "miss"
    other = tmp_path / "other++"
    other.symlink_to(os.path.realpath(shutil.which("c++") or ""))
    before = daemon.status()
    for command in (str(other), f"ccache {other}"):
        assert outcome(connection, CXX=command) == "miss"
    after = daemon.status()
    assert changed(after, before) == {"compiles": 0, "units_reused": 2, "links": 2}
    assert len(after["profiles"]) == len(before["profiles"])


def test_options_beside_the_name_count(
    daemon: Daemon, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    connection = Connection(daemon, context)
    outcome(connection)
    before = daemon.status()
    assert outcome(connection, CXX=f"{shutil.which('c++')} -fno-inline") == "miss"
    assert changed(daemon.status(), before)["compiles"] == 1

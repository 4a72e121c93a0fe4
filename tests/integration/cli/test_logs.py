"""What the daemon keeps of a request on disk holds no value of a macro: it may be a secret."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from tests.support.calls import Connection, module_source, request
from tests.support.commands import warmcc
from tests.support.daemons import Daemon
from warmcc.protocol import Built, Declined, Failed

Context = zmq.Context[zmq.Socket[bytes]]
SECRET = "hunter2"


def texts(daemon: Daemon) -> Iterator[tuple[Path, str]]:
    for path in (daemon.log_file, *daemon.state_dir.iterdir()):
        yield path, path.read_text(errors="replace")


@pytest.mark.slow
def test_secrets_in_flags_are_in_no_log(
    fresh_daemon: Callable[..., Daemon], context: Context
) -> None:
    """Of builds that succeed, that do not compile, that do not link and that are left to stock."""
    daemon = fresh_daemon(log_level="debug", ccache=False, pch=False)
    connection = Connection(daemon, context)
    short = f"-DAPI_KEY={SECRET}"
    flags = [short, "-D", f"TOKEN={SECRET}", f"'-DQUOTED=\"a {SECRET}\"'"]
    assert isinstance(connection.build(request(extra_cflags=[short])), Built)
    assert isinstance(connection.build(request(extra_cflags=flags)), Built)
    assert isinstance(connection.build(request(extra_cflags=[short + "3"])), Built)
    told = warmcc(daemon, "why", "tiny")
    assert "value of a macro" in told and SECRET not in told
    failed = connection.build(request(cpp_sources=["#error wrong\n"], extra_cflags=flags))
    assert isinstance(failed, Failed) and failed.diagnostics
    failed = connection.build(
        request(cpp_sources=[module_source(9)], extra_cflags=flags, extra_ldflags=["-lnowhere"])
    )
    assert isinstance(failed, Failed) and "nowhere" in failed.message
    wrong = request(
        cpp_sources=[module_source(2)],
        extra_cflags=[*flags, f"-fplugin=/x -DOTHER={SECRET}", "@/x"],
    )
    assert isinstance(connection.build(wrong), Declined | Failed)
    secrets = {
        path.name: [line for line in text.splitlines() if SECRET in line]
        for path, text in texts(daemon)
    }
    assert secrets == {"daemon.out": [], "log.jsonl": []}
    assert "-DAPI_KEY=…" in (daemon.state_dir / "log.jsonl").read_text(), "the names are there"
    assert not any(SECRET in str(reason) for reason in daemon.status()["requests"].values())

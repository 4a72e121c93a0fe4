"""The command line as people and scripts use it: real processes, a real daemon."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.calls import Connection, request
from tests.support.daemons import Daemon
from warmcc import __version__


def warmcc(
    daemon: Daemon | None, *words: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, **(daemon.environment if daemon else {}), **environment}
    return subprocess.run(
        [sys.executable, "-m", "warmcc.client.cli", *words], cwd="/", env=variables,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def data(daemon: Daemon, *words: str) -> Any:
    done = warmcc(daemon, *words, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_status(daemon: Daemon) -> None:
    found = data(daemon, "status")
    assert (found["pid"], found["version"]) == (daemon.pid, __version__)
    shown = warmcc(daemon, "status")
    assert shown.returncode == 0
    assert f"process {daemon.pid}" in shown.stdout
    assert "\x1b" not in shown.stdout, "colour in a pipe"


def test_profiles(daemon: Daemon) -> None:
    found = data(daemon, "profiles")
    assert found["limit"] > 0
    assert f"{len(found['profiles'])} profiles" in warmcc(daemon, "profiles").stdout


def test_version(daemon: Daemon) -> None:
    assert data(daemon, "version")["daemon"] == __version__
    assert "not running" in warmcc(None, "version").stdout


def test_the_cache_is_listed_verified_pruned_and_cleared(
    fresh_daemon: Callable[..., Daemon], context: Any
) -> None:
    daemon = fresh_daemon()
    Connection(daemon, context).build(request())
    entries = data(daemon, "cache", "ls")["entries"]
    assert sorted(entry["kind"] for entry in entries) == ["artifact", "unit"]
    assert data(daemon, "cache", "verify")["damaged"] == 0
    assert "tiny" in warmcc(daemon, "cache", "ls").stdout
    assert warmcc(daemon, "cache", "prune", "--size", "1GiB").returncode == 0
    assert len(data(daemon, "cache", "ls")["entries"]) == 2
    assert warmcc(daemon, "cache", "clear").returncode == 0


def test_config(daemon: Daemon, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("jobs = 2\n")
    environment = {"WARMCC_CONFIG": str(file), "WARMCC_LEAN": "0"}
    shown = json.loads(warmcc(daemon, "config", "show", "--json", **environment).stdout)
    assert shown["jobs"] == {"value": 2, "source": str(file)}
    assert shown["lean"] == {"value": False, "source": "WARMCC_LEAN"}
    assert shown["ccache"]["source"] == "default"
    assert warmcc(daemon, "config", "path", **environment).stdout.strip() == str(file)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["staus"], 2, "did you mean: warmcc status"),
        (["frobnicate"], 2, "invalid choice"),
        ([], 2, "COMMAND"),
        (["cache"], 2, "action"),
        (["cache", "prune", "--size", "big"], 2, "not a size"),
        (["cache", "ls", "--size", "1"], 2, "warmcc cache prune"),
        (["status"], 3, "daemon"),
        (["start", "--nonsense"], 2, "unrecognized"),
    ],
)
def test_what_is_wrong_is_said_on_one_line_with_its_code(
    words: list[str], code: int, said: str
) -> None:
    done = warmcc(None, *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_no_login_session_is_no_news(tmp_path: Path) -> None:
    """As in a container: XDG_RUNTIME_DIR is not set, and nobody wants to hear of it each time."""
    done = warmcc(None, "status", XDG_RUNTIME_DIR="", WARMCC_RUNTIME_DIR="", TMPDIR=str(tmp_path))
    running = done.returncode == 0  # whoever runs the tests may have a daemon there
    assert running or (done.returncode, done.stdout) == (3, "")
    assert done.stderr.splitlines() == (
        []
        if running
        else ["warmcc: the warmcc daemon is not running; start it with `warmcc start`"]
    )


def test_a_wrong_configuration_is_said(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("jbos = 2\n")
    done = warmcc(None, "config", "show", WARMCC_CONFIG=str(file))
    assert done.returncode == 2
    assert "did you mean 'jobs'" in done.stderr


def test_start_and_stop(tmp_path: Path) -> None:
    daemon = Daemon()  # its folders and variables only
    environment = {"WARMCC_PREWARM": "", "WARMCC_AUTOSTART": "1"}
    try:
        assert "daemon is not running" in warmcc(daemon, "stop").stderr
        assert "started" in warmcc(daemon, "start", **environment).stderr
        assert "already running" in warmcc(daemon, "start", **environment).stderr
        assert "stopped" in warmcc(daemon, "stop").stderr
        assert warmcc(daemon, "status").returncode == 3
        assert not daemon.left_over()
    finally:
        daemon.discard()


def test_help_of_every_command_has_an_example() -> None:
    words = warmcc(None, "--help").stdout
    for command in ("start", "stop", "status", "profiles", "cache", "config", "version"):
        assert command in words
        assert "example:" in warmcc(None, command, "--help").stdout

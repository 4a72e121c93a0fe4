"""The remote store of two real daemons with separate caches: what one built, the other one finds;
and what goes wrong with it changes nothing but the time.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.support import calls, remotes
from tests.support.calls import Connection, module_source, request
from tests.support.daemons import Daemon
from tests.support.remotes import Proxy
from warmcc.protocol import Built

Context = zmq.Context[zmq.Socket[bytes]]
Fresh = Callable[..., Daemon]

PATIENT = {"ccache": False, "remote_wait": 60}


def wait_until(daemon: Daemon, **counts: int) -> dict[str, Any]:
    """The status of a daemon's remote store, once it has counted so much."""
    deadline = time.monotonic() + 60
    while True:
        found: dict[str, Any] = daemon.status()["remote"]
        if all(found[name] >= count for name, count in counts.items()):
            return found
        assert time.monotonic() < deadline, f"{found}\n{daemon.log()}"
        time.sleep(0.05)


def fill(fresh: Fresh, context: Context, url: str, wanted: Any = None) -> Built:
    """Have a daemon build something, and give it to the remote store."""
    daemon = fresh(remote=url, **PATIENT)
    answer = Connection(daemon, context).build(wanted or request())
    assert isinstance(answer, Built) and answer.outcome == "miss", answer
    wait_until(daemon, given=1)
    return answer


def expect(daemon: Daemon, context: Context, outcome: str, wanted: Any = None) -> Built:
    """The answer of a daemon; its module is right."""
    answer = Connection(daemon, context).build(wanted or request())
    assert isinstance(answer, Built) and answer.outcome == outcome, (answer, daemon.log())
    assert calls.load(answer, "tiny").answer() == 42
    return answer


@contextlib.contextmanager
def server(kind: str, folder: Path) -> Iterator[tuple[str, int]]:
    """A real server: a URL with ``PORT`` in place of its port, and its port."""
    if kind == "webdav":
        with remotes.webdav(folder) as port:
            yield f"http://{remotes.USER}@127.0.0.1:PORT/team/warmcc", port
    else:
        with remotes.redis(folder) as port:
            yield "redis://:secret@127.0.0.1:PORT/1", port


def test_another_daemon_finds_what_was_built(
    fresh_daemon: Fresh, context: Context, tmp_path: Path
) -> None:
    url = str(tmp_path / "remote")
    first = fill(fresh_daemon, context, url)
    daemon = fresh_daemon(remote=url, **PATIENT)
    answer = expect(daemon, context, "hit")
    assert answer.way == f"from the remote store; {first.way}"
    assert (answer.sources, answer.files) == (first.sources, first.files)
    assert Path(answer.path).is_relative_to(daemon.cache_dir)
    status = daemon.status()
    assert (status["compiles"], status["links"], status["requests"]["hits"]) == (0, 0, 1)
    assert (status["remote"]["found"], status["remote"]["url"]) == (1, url)
    assert expect(daemon, context, "hit").way == first.way, "it is in its own store now"
    assert daemon.status()["remote"]["found"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["webdav", "redis"])
def test_on_real_servers(kind: str, fresh_daemon: Fresh, context: Context, tmp_path: Path) -> None:
    with server(kind, tmp_path) as (url, port):
        fill(fresh_daemon, context, url.replace("PORT", str(port)))
        daemon = fresh_daemon(remote=url.replace("PORT", str(port)), **PATIENT)
        expect(daemon, context, "hit")
        shown = json.dumps(daemon.status())
    assert "secret" not in shown and "pass%2Fword" not in shown
    log = (daemon.state_dir / "log.jsonl").read_text() + daemon.log()
    assert "secret" not in log and "pass%2Fword" not in log


@pytest.mark.slow
def test_files_of_a_load(fresh_daemon: Fresh, context: Context, tmp_path: Path) -> None:
    """Their contents count: a source or a header that differs is another result."""
    header, source = tmp_path / "value.h", tmp_path / "tiny.cpp"
    header.write_text("#define VALUE 42\n")
    source.write_text('#include "value.h"\n' + module_source(42).replace("(42)", "(VALUE)"))
    wanted = calls.load_request([source])
    url = str(tmp_path / "remote")
    fill(fresh_daemon, context, url, wanted)
    expect(fresh_daemon(remote=url, **PATIENT), context, "hit", wanted)
    header.write_text("#define VALUE 41 + 1\n")
    daemon = fresh_daemon(remote=url, **PATIENT)
    expect(daemon, context, "miss", wanted)
    wait_until(daemon, given=1)
    expect(fresh_daemon(remote=url, **PATIENT), context, "hit", wanted)
    header.write_text("#define VALUE 42\n")
    expect(fresh_daemon(remote=url, **PATIENT), context, "hit", wanted)


FAULTS: dict[str, dict[str, Any]] = {
    "dies at once": {"cut": 0},
    "dies in the head": {"cut": 20},
    "dies in the middle": {"cut": 3000},
    "flips a bit": {"flip": 2500},
    "hangs": {"hang": 0},
    "hangs in the middle": {"hang": 3000},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["webdav", "redis"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_server_that_fails_changes_nothing_but_the_time(
    fault: str, kind: str, fresh_daemon: Fresh, context: Context, tmp_path: Path
) -> None:
    with server(kind, tmp_path) as (url, port):
        fill(fresh_daemon, context, url.replace("PORT", str(port)))
        with Proxy(port, **FAULTS[fault]) as proxy:
            daemon = fresh_daemon(remote=url.replace("PORT", str(proxy.port)), ccache=False)
            expect(daemon, context, "miss")
            expect(daemon, context, "hit")
            assert proxy.connections
            found = daemon.status()["remote"]
            assert found["found"] == 0
            daemon.stop()  # with transfers that hang, too
    assert not list((daemon.cache_dir / "store" / "staging").iterdir())


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["files", "results"])
def test_damage_is_built_and_repaired(
    folder: str, fresh_daemon: Fresh, context: Context, tmp_path: Path
) -> None:
    url = tmp_path / "remote"
    fill(fresh_daemon, context, str(url))
    for path in (url / "v1" / folder).rglob("*"):
        if path.is_file():
            flip(path)
    daemon = fresh_daemon(remote=url, **PATIENT)
    expect(daemon, context, "miss")
    assert wait_until(daemon, given=1)["not_found"] == {"damaged": 1}
    expect(fresh_daemon(remote=url, **PATIENT), context, "hit")


@pytest.mark.slow
def test_signatures(fresh_daemon: Fresh, context: Context, tmp_path: Path) -> None:
    signing = pytest.importorskip("warmcc.signing")
    pytest.importorskip("cryptography", reason="cryptography is not installed")
    key, other = str(tmp_path / "key.pem"), str(tmp_path / "other.pem")
    public, others = signing.make_key(key), signing.make_key(other)
    url = str(tmp_path / "remote")
    writer = fresh_daemon(remote=url, bundle_key=key, **PATIENT)
    expect(writer, context, "miss")
    wait_until(writer, given=1)
    expect(fresh_daemon(remote=url, bundle_trust=[public], **PATIENT), context, "hit")
    distrusts = fresh_daemon(remote=url, bundle_trust=[others], **PATIENT)
    expect(distrusts, context, "miss")
    found = distrusts.status()["remote"]
    assert found["not_found"] == {"not signed": 1} and not found["writes"]


@pytest.mark.slow
def test_a_folder_that_cannot_be_used(
    fresh_daemon: Fresh, context: Context, tmp_path: Path
) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    daemon = fresh_daemon(remote=tmp_path / "open", **PATIENT)
    expect(daemon, context, "miss")
    assert "can be written by all users" in daemon.status()["remote"]["refused"]
    (tmp_path / "file").touch()
    daemon = fresh_daemon(remote=tmp_path / "file", **PATIENT)
    expect(daemon, context, "miss")
    found = wait_until(daemon)
    assert found["found"] == found["given"] == 0 and found["not_found"]


def remote_check(daemon: Daemon, *more: str, **changes: str) -> subprocess.CompletedProcess[str]:
    settings = {f"WARMCC_{name.upper()}": str(value) for name, value in daemon.settings.items()
                if name.startswith("remote")}  # fmt: skip
    return subprocess.run(
        [sys.executable, "-m", "warmcc.client.cli", "remote", "check", *more],
        env={**os.environ, **daemon.environment, **settings, **changes}, text=True,
        capture_output=True, check=False,
    )  # fmt: skip


def test_remote_check(fresh_daemon: Fresh, tmp_path: Path) -> None:
    daemon = fresh_daemon(remote=tmp_path / "remote")
    done = remote_check(daemon)
    assert done.returncode == 0, done.stderr
    assert f"ok: {tmp_path}/remote can be written, read and deleted" in done.stdout
    assert json.loads(remote_check(daemon, "--json").stdout)["problem"] == ""
    assert not [path for path in (tmp_path / "remote").rglob("*") if path.is_file()]
    other = remote_check(daemon, WARMCC_REMOTE="/elsewhere")
    assert other.returncode == 3 and "warmcc stop; warmcc start" in other.stderr


@pytest.mark.slow
def test_remote_check_says_what_is_wrong(fresh_daemon: Fresh, tmp_path: Path) -> None:
    port = remotes.free_port()
    for settings, code, said in (
        ({}, 2, "there is no remote store: set remote"),
        ({"remote": "relative/folder"}, 3, "neither a URL nor an absolute path"),
        ({"remote": f"redis://:s3cret@127.0.0.1:{port}"}, 3, "unreachable: Connection refused"),
        ({"remote": "nosuchthing://host/x"}, 3, "nosuchthing"),
    ):
        done = remote_check(fresh_daemon(**settings))
        assert done.returncode == code and said in done.stderr, done
        assert "s3cret" not in done.stderr and done.stderr.startswith("warmcc: ")
    with remotes.webdav(tmp_path) as port:
        url = f"http://someone:wrong@127.0.0.1:{port}/"
        done = remote_check(fresh_daemon(remote=url))
        assert "denied: the server answers PUT with HTTP 401" in done.stderr
        url = f"http://{remotes.USER}@127.0.0.1:{port}/"
        done = remote_check(fresh_daemon(remote=url, remote_write=0), WARMCC_REMOTE_WRITE="0")
        assert "can be read (nothing is written)" in done.stdout, done.stderr

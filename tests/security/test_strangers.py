"""Other users, planted sockets, links and store entries, and paths in names: refused, each with a reason."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import zmq

from tests import calls
from tests.calls import Connection, module_source, request
from tests.daemons import Daemon
from warmcc.client.session import Session
from warmcc.errors import DaemonError
from warmcc.protocol import Built, Cache, Declined, Failed

Context = zmq.Context[zmq.Socket[bytes]]
NOBODY = 65534
AS_ANOTHER = """
import os, sys
os.setgroups([]); os.setgid({uid}); os.setuid({uid})
import zmq
from warmcc import protocol
context = zmq.Context()
socket = context.socket(zmq.DEALER)
socket.linger = 0
socket.connect("ipc://" + sys.argv[1])
socket.send_multipart([protocol.MAGIC, protocol.encode(protocol.Hello([1], "0", os.getpid()))])
socket.send_multipart([protocol.MAGIC, protocol.encode(protocol.Stop(1))])
print("answered" if socket.poll(3000) else "no answer")
"""

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may be somebody else")


@needs_root
def test_another_user_is_not_heard(fresh_daemon: Callable[..., Daemon], context: Context) -> None:
    """Also where the folder and the socket are open to everybody: the kernel says who is asking."""
    daemon = fresh_daemon()
    for path, mode in ((daemon.folder, 0o755), (daemon.runtime_dir, 0o755), (daemon.socket, 0o666)):
        path.chmod(mode)
    # The interpreter may be where the other user cannot read, so it becomes another user after its imports.
    script = AS_ANOTHER.format(uid=NOBODY)
    head, imports = script.split("import zmq\n", 1)
    lines = ["import zmq", "from warmcc import protocol", *head.strip().splitlines()]
    lines += [line for line in imports.splitlines() if not line.startswith("from warmcc")]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines), str(daemon.socket)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "no answer\n", done
    daemon.runtime_dir.chmod(0o700)
    status = daemon.status()
    assert status["requests"]["strangers"] == 2
    assert daemon.running()


@needs_root
def test_a_socket_of_somebody_else_is_not_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("WARMCC_RUNTIME_DIR", str(folder))
    with socket.socket(socket.AF_UNIX) as planted:
        planted.bind(str(folder / "daemon.sock"))
        planted.listen()
        os.chown(folder, NOBODY, NOBODY)
        with pytest.raises(DaemonError, match="is not a folder of yours alone"):
            Session(autostart=True)


@pytest.mark.parametrize("what", ["link", "open", "file"])
def test_a_folder_that_is_not_ones_own(what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real, folder = tmp_path / "real", tmp_path / "run"
    real.mkdir(mode=0o700)
    if what == "link":
        folder.symlink_to(real)
    elif what == "file":
        folder.touch()
    else:
        folder.mkdir()
        folder.chmod(0o770)
    monkeypatch.setenv("WARMCC_RUNTIME_DIR", str(folder))
    with pytest.raises(DaemonError, match="is not a folder of yours alone"):
        Session(autostart=True)


@needs_root
@pytest.mark.skipif(os.path.exists(f"/run/user/{os.getuid()}"), reason="there is a folder of the login to use")
def test_a_planted_default_folder(tmp_path: Path) -> None:
    """Without XDG_RUNTIME_DIR the folder has a name that anybody can guess, in the temporary folder."""
    planted = tmp_path / f"runtime-{os.getuid()}"
    planted.mkdir()
    os.chown(planted, NOBODY, NOBODY)
    places = dict.fromkeys(("TMPDIR", "XDG_STATE_HOME", "XDG_CACHE_HOME"), str(tmp_path))
    unset = ("XDG_RUNTIME_DIR", "WARMCC_RUNTIME_DIR", "WARMCC_CACHE_DIR", "WARMCC_STATE_DIR")
    environment = {**os.environ, **dict.fromkeys(unset, ""), **places}
    for command in ("status", "doctor", "start"):
        done = subprocess.run(
            [sys.executable, "-m", "warmcc.client.cli", command], env=environment, capture_output=True, text=True,
            timeout=60,
        )  # fmt: skip
        assert done.returncode != 0, done
        assert f"{planted} is owned by uid {NOBODY}" in done.stdout + done.stderr
        assert "WARMCC_RUNTIME_DIR" in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
    assert list(planted.iterdir()) == []


@pytest.mark.parametrize("which", ["run", "cache", "state", "cache/store", "cache/tmp"])
def test_a_daemon_does_not_start_in_a_planted_folder(which: str, tmp_path: Path) -> None:
    daemon = Daemon()
    try:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir(mode=0o700)
        (elsewhere / "mine").write_text("mine")
        place = daemon.folder / which
        place.parent.mkdir(mode=0o700, exist_ok=True)
        place.symlink_to(elsewhere)
        done = subprocess.run(
            [sys.executable, "-m", "warmcc.daemon"], env={**os.environ, **daemon.environment}, capture_output=True,
            text=True, timeout=30,
        )  # fmt: skip
        assert done.returncode == 3, done
        assert "is not a folder (a link?); remove it" in done.stderr
        assert (elsewhere / "mine").read_text() == "mine"
        assert sorted(elsewhere.iterdir()) == [elsewhere / "mine"]
    finally:
        daemon.discard()


def test_a_planted_lock_and_log_are_not_followed(tmp_path: Path) -> None:
    daemon = Daemon()
    try:
        daemon.runtime_dir.mkdir(mode=0o700)
        (target := tmp_path / "target").write_text("mine")
        (daemon.runtime_dir / "daemon.lock").symlink_to(target)
        done = subprocess.run(
            [sys.executable, "-m", "warmcc.daemon"], env={**os.environ, **daemon.environment}, capture_output=True,
            text=True, timeout=30,
        )  # fmt: skip
        assert done.returncode == 3, done
        assert target.read_text() == "mine"
    finally:
        daemon.discard()


def test_planted_store_entries(fresh_daemon: Callable[..., Daemon], context: Context, tmp_path: Path) -> None:
    """Another file in an artifact's place is a miss, not a module: also through a link, and a manifest by another."""
    daemon = fresh_daemon(ccache=False)
    connection = Connection(daemon, context)
    good, evil = connection.build(request()), connection.build(request(cpp_sources=[module_source(666)]))
    assert isinstance(good, Built) and isinstance(evil, Built)
    place = Path(good.path)
    for plant in (
        lambda: shutil.copyfile(evil.path, place),
        lambda: (place.unlink(), place.symlink_to(evil.path)),
        lambda: (place.unlink(), os.link(evil.path, place)),
    ):
        plant()
        again = connection.build(request())
        assert calls.load(again, "tiny").answer() == 42
    results = daemon.cache_dir / "store" / "results" / "artifact"
    manifests = sorted(results.rglob("*"), key=lambda path: path.stat().st_mtime)
    first, second = [path for path in manifests if path.is_file()][:2]
    shutil.copyfile(second, first)
    for wanted, answer in ((request(), 42), (request(cpp_sources=[module_source(666)]), 666)):
        assert calls.load(connection.build(wanted), "tiny").answer() == answer
    assert daemon.ask(Cache(1, "verify")).data["damaged"] == 0


@pytest.mark.parametrize(
    "name", ["../../evil", "/tmp/evil", "a/b", "..", ".", "a\0b", "x" * 300, "a\nb", "a b;rm", "$(x)"]
)
def test_paths_in_names(name: str, daemon: Daemon, context: Context) -> None:
    """A name is a part of file names and of commands: what is more than a name ends in an error, and in no file."""
    before = sorted(daemon.folder.rglob("*evil*"))
    connection = Connection(daemon, context)
    try:
        wanted = request(name=name, module_name=name)
        connection.ask(msgspec.structs.replace(wanted, cpp_sources=[module_source()]))
    except (msgspec.ValidationError, ValueError):
        return
    try:
        answer = connection.answer(20)
    except TimeoutError:
        pytest.fail("no answer")
    assert isinstance(answer, (Failed, Declined, Built)) or type(answer).__name__ == "Refused", answer
    if isinstance(answer, Built):
        assert Path(answer.path).is_relative_to(daemon.cache_dir / "store" / "artifacts")
    assert not Path("/tmp/evil").exists() and not Path("/tmp/evil.so").exists()
    assert sorted(daemon.folder.rglob("*evil*")) == before

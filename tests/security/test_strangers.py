"""Other users, planted sockets, links and store entries, and paths in names: refused, each with a
reason.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zmq

from tests.support import calls
from tests.support.anywhere import KEEP_BEGIN, kept, top
from tests.support.calls import Connection, module_source, request
from tests.support.daemons import Daemon
from warmcc.client.connection.session import Session
from warmcc.errors import DaemonError
from warmcc.protocol import Build, Built, Cache, Declined, Refused

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

needs_root = pytest.mark.skipif(
    os.getuid() != 0, reason="only root may be somebody else: run make test as root"
)


@needs_root
def test_another_user_is_not_heard(fresh_daemon: Callable[..., Daemon], context: Context) -> None:
    """Also where the folder and the socket are open to everybody: the kernel says who is asking."""
    daemon = fresh_daemon()
    for path, mode in ((daemon.folder, 0o755), (daemon.runtime_dir, 0o755), (daemon.socket, 0o666)):
        path.chmod(mode)
    # The interpreter may be where the other user cannot read, so it becomes another user after its
    # imports.
    script = AS_ANOTHER.format(uid=NOBODY)
    head, imports = script.split("import zmq\n", 1)
    lines = ["import zmq", "from warmcc import protocol", *head.strip().splitlines()]
    lines += [line for line in imports.splitlines() if not line.startswith("from warmcc")]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines), str(daemon.socket)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "no answer\n", done
    daemon.runtime_dir.chmod(0o700)
    status = daemon.status()
    assert status["requests"]["strangers"] >= 1
    assert daemon.running()


@needs_root
def test_a_socket_of_somebody_else_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("WARMCC_RUNTIME_DIR", str(folder))
    with socket.socket(socket.AF_UNIX) as planted:
        planted.bind(str(folder / "daemon.sock"))
        planted.listen()
        os.chown(folder, NOBODY, NOBODY)
        with pytest.raises(DaemonError, match="not private to you"):
            Session(autostart=True)


@pytest.mark.parametrize("what", ["link", "open", "file"])
def test_a_folder_that_is_not_ones_own(
    what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
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
    with pytest.raises(DaemonError, match="not private to you"):
        Session(autostart=True)


PLANT = (
    f"""
mount -t tmpfs tmpfs "$TOP"
{KEEP_BEGIN}
"""
    + """
for place in /tmp /var/tmp /dev/shm; do
    mount -t tmpfs -o mode=1777 tmpfs $place
    mkdir $place/warmcc-0
    chown {nobody}:{nobody} $place/warmcc-0
done
if [ -n "$KEEP" ]; then mkdir -p "$KEEP"; mount --bind "$TOP/kept" "$KEEP"; fi
mount -t tmpfs tmpfs /run
for command in status doctor start; do
  "$PYTHON" -m warmcc.client.cli $command && echo "$command: served"
done
find /tmp/warmcc-0 /var/tmp/warmcc-0 /dev/shm/warmcc-0 -mindepth 1
"""
)


@needs_root
def test_planted_default_folders() -> None:
    """Anybody can guess their names and make them first: what is there is neither trusted nor
    written to.
    """
    unset = ("XDG_RUNTIME_DIR", "WARMCC_RUNTIME_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    script = PLANT.format(nobody=NOBODY)
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, timeout=120,
        env={**environment, "PYTHON": sys.executable, "TOP": top(), "KEEP": kept()},
    )  # fmt: skip
    if "unshare failed" in done.stderr:
        pytest.skip(f"no namespaces: {done.stderr.strip()}")
    said = done.stdout + done.stderr
    assert "served" not in said
    assert said.count("Set WARMCC_RUNTIME_DIR to a writable folder that you own") == 2 + said.count(
        "→ Set WARMCC_RUNTIME_DIR"
    )
    assert "/dev/shm/warmcc-0" in said
    assert "Traceback" not in said
    assert not [line for line in done.stdout.splitlines() if line.startswith("/")], (
        "something was put there"
    )


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
            [sys.executable, "-m", "warmcc.daemon"], env={**os.environ, **daemon.environment},
            capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        assert done.returncode == 3, done
        assert "is not a folder (a link?); remove it" in done.stderr
        assert (elsewhere / "mine").read_text() == "mine"
        assert sorted(elsewhere.iterdir()) == [elsewhere / "mine"]
    finally:
        daemon.discard()


@pytest.mark.parametrize("which", ["run/daemon.lock", "state/log.jsonl", "state/daemon.log"])
def test_a_planted_lock_or_log_is_not_followed(which: str, tmp_path: Path) -> None:
    """A daemon that is started by a client, with a link in the place of a file that it writes."""
    daemon = Daemon()
    settings = {"WARMCC_PREWARM": "", "WARMCC_PREWARM_CUDA": "0"}

    def warmcc(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "warmcc.client.cli", command],
            env={**os.environ, **daemon.environment, **settings}, capture_output=True, text=True,
            timeout=60,
        )  # fmt: skip

    try:
        (target := tmp_path / "target").write_text("mine")
        place = daemon.folder / which
        place.parent.mkdir(mode=0o700)
        place.symlink_to(target)
        started = warmcc("start")
        assert (started.returncode == 0) == (which == "state/log.jsonl"), started
        if started.returncode == 0:
            daemon.process = subprocess.Popen(["sleep", "100"])  # what ``ask`` takes for the daemon
            assert isinstance(
                daemon.ask(Build(1, request(environment={"CXX": "nowhere"})), 60), Declined
            )
            assert warmcc("stop").returncode == 0
        assert target.read_text() == "mine"
    finally:
        daemon.discard()


def test_planted_store_entries(
    fresh_daemon: Callable[..., Daemon], context: Context, tmp_path: Path
) -> None:
    """Another file in an artifact's place is a miss, not a module: also through a link, and a
    manifest by another.
    """
    daemon = fresh_daemon(ccache=False)
    connection = Connection(daemon, context)
    good, evil = (
        connection.build(request()),
        connection.build(request(cpp_sources=[module_source(666)])),
    )
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
    "name",
    [
        "../../evil",
        "/tmp/evil",
        "a/b",
        "..",
        ".",
        "a\0b",
        "a\nb",
        "a b;rm",
        "$(x)",
        "-evil",
        ".evil",
        "évil;",
        "a:b",
        "a|b",
    ],
)
@pytest.mark.parametrize("module", [True, False])
def test_names_that_are_more_than_names(
    module: bool, name: str, daemon: Daemon, context: Context
) -> None:
    """A name is a part of file names and of commands: what is more than a name is left to stock,
    and makes no file. That no command runs is in test_injection.py."""
    before = sorted(daemon.folder.rglob("*evil*"))
    connection = Connection(daemon, context)
    for fields in ({"name": name, "module_name": name}, {"module_name": name}):
        answer = connection.build(
            request(**fields, is_python_module=module, cpp_sources=[module_source()]), 60
        )
        assert isinstance(answer, Declined) and answer.expected, answer
    assert not Path("/tmp/evil").exists() and not Path("/tmp/evil.so").exists()
    assert sorted(daemon.folder.rglob("*evil*")) == before


def test_a_name_that_is_too_long_is_no_message(daemon: Daemon, context: Context) -> None:
    connection = Connection(daemon, context)
    answer = connection.build(request(name="x" * 300, module_name="x" * 300), 60)
    assert isinstance(answer, Refused) and "not a message of this protocol" in answer.reason


@pytest.mark.parametrize(
    ("name", "module", "built"),
    [
        ("ünïcode", True, True), ("_x", True, True), ("a-b", True, False), ("1a", True, False),
        ("a.b", True, False), ("a-b", False, True), ("a.b+c", False, True), ("1a", False, True),
        ("a b", False, False), ("+a", False, False),
    ],
)  # fmt: skip
def test_names_that_stock_can_build(
    name: str, module: bool, built: bool, daemon: Daemon, context: Context
) -> None:
    """Others are left to it, for its own error."""
    wanted = request(
        name=name, module_name=name, is_python_module=module, cpp_sources=["int nothing;\n"]
    )
    answer = Connection(daemon, context).build(wanted)
    assert isinstance(answer, Built if built else Declined), answer

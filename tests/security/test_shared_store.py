"""The shared store: an operator's daemon fills it, the others read it, and nobody else has a say."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from tests import calls
from tests.calls import Connection, module_source, request
from tests.daemons import Daemon
from warmcc.protocol import Built, Cache

Context = zmq.Context[zmq.Socket[bytes]]
OPERATOR, STRANGER = 4242, 4243
pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root may give files to others")


def give_to(uid: int, root: Path) -> None:
    for path in (root, *root.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)


@contextlib.contextmanager
def operator(root: Path) -> Iterator[tuple[Daemon, Connection]]:
    """The daemon of someone who fills the shared store in this folder."""
    root.mkdir()
    root.chmod(0o755)
    daemon = Daemon(ccache=False, shared_store=root)
    try:
        with zmq.Context() as context:
            connection = Connection(daemon.start(), context)
            yield daemon, connection
            connection.close()
        daemon.stop()
    finally:
        daemon.discard()


@pytest.fixture(scope="module")
def operators_result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shared store with the tiny module in it."""
    root = tmp_path_factory.mktemp("operator") / "shared"
    with operator(root) as (daemon, connection):
        assert isinstance(connection.build(request()), Built)
        assert daemon.status()["shared store"]["offered"] == 1
        for path in (root, *root.rglob("*")):
            assert path.stat().st_mode & 0o044 == 0o044 or "staging" in path.parts, f"{path} cannot be read by others"
            assert not path.stat().st_mode & 0o022
    return root


@pytest.fixture
def filled(operators_result: Path, tmp_path: Path) -> Path:
    """The same, as the operator's own."""
    root = Path(shutil.copytree(operators_result, tmp_path / "shared"))
    give_to(OPERATOR, root)
    return root


def test_others_find_what_the_operator_built(
    filled: Path, fresh_daemon: Callable[..., Daemon], context: Context
) -> None:
    before = {path: path.stat().st_mtime_ns for path in filled.rglob("*")}
    daemon = fresh_daemon(shared_store=filled, ccache=False)
    connection = Connection(daemon, context)
    answer = connection.build(request())
    assert isinstance(answer, Built) and answer.outcome == "hit"
    assert Path(answer.path).is_relative_to(daemon.cache_dir), "it is loaded from one's own store"
    assert calls.load(answer, "tiny").answer() == 42
    assert isinstance(connection.build(request(cpp_sources=[module_source(2)])), Built)
    status = daemon.status()
    assert (status["compiles"], status["shared store"]["found"], status["shared store"]["offered"]) == (1, 1, 0)
    assert {path: path.stat().st_mtime_ns for path in filled.rglob("*")} == before, "nothing was written"


def damage_artifact(root: Path) -> None:
    for path in (root / "artifacts").rglob("*.so"):
        path.write_bytes(path.read_bytes()[:-1] + b"x")


def damage_manifest(root: Path) -> None:
    for path in (root / "results").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-1])


def damage_headers(root: Path) -> None:
    for path in (root / "headers").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes() + b"x")


def strangers_artifact(root: Path) -> None:
    for path in (root / "artifacts").rglob("*.so"):
        os.chown(path, STRANGER, STRANGER)


def open_artifact(root: Path) -> None:
    for path in (root / "artifacts").rglob("*.so"):
        path.chmod(0o777)


def linked_artifact(root: Path) -> None:
    for path in (root / "artifacts").rglob("*.so"):
        path.rename(path.with_name("elsewhere"))
        path.symlink_to(path.with_name("elsewhere"))


def pipe_artifact(root: Path) -> None:
    for path in list((root / "artifacts").rglob("*.so")):
        path.unlink()
        os.mkfifo(path)
        os.chown(path, OPERATOR, OPERATOR)


@pytest.mark.parametrize(
    "damage",
    [
        damage_artifact,
        damage_manifest,
        damage_headers,
        strangers_artifact,
        open_artifact,
        linked_artifact,
        pipe_artifact,
    ],
)
def test_what_is_not_as_the_operator_left_it_is_built_anew(
    damage: Callable[[Path], None], filled: Path, fresh_daemon: Callable[..., Daemon], context: Context
) -> None:
    damage(filled)
    daemon = fresh_daemon(shared_store=filled, ccache=False)
    answer = Connection(daemon, context).build(request())
    assert isinstance(answer, Built) and answer.outcome == "miss", answer
    assert calls.load(answer, "tiny").answer() == 42
    assert daemon.status()["shared store"]["found"] == 0


@pytest.mark.parametrize("where", ["root", "above", "open", "link", "missing"])
def test_a_folder_that_others_can_write_is_not_used(
    where: str, filled: Path, fresh_daemon: Callable[..., Daemon], context: Context
) -> None:
    if where == "root":
        filled.chmod(0o777)
    elif where == "above":
        os.chown(filled.parent, STRANGER, STRANGER)
    elif where == "open":
        filled.parent.chmod(0o777)
    elif where == "link":
        filled.rename(filled.with_name("real"))
        filled.symlink_to(filled.with_name("real"))
    else:
        filled = filled / "nowhere"
    daemon = fresh_daemon(shared_store=filled, ccache=False)
    answer = Connection(daemon, context).build(request())
    assert isinstance(answer, Built) and answer.outcome == "miss"
    assert daemon.status()["shared store"]["refused"]


@pytest.fixture(scope="module")
def operators_profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shared store with the precompiled header of <Python.h>."""
    root = tmp_path_factory.mktemp("operator") / "shared"
    with operator(root) as (daemon, connection):
        for number in range(3):
            assert isinstance(connection.build(request(cpp_sources=[module_source(number)])), Built)
        daemon.wait_for_profiles(1)
    (folder,) = (root / "profiles").iterdir()
    assert {path.name for path in folder.iterdir()} == {"prelude.h", "prelude.h.gch", "prelude.h.gch.sum", "profile"}
    return root


@pytest.fixture
def with_profile(operators_profile: Path, tmp_path: Path) -> Path:
    """The same, as the operator's own."""
    root = Path(shutil.copytree(operators_profile, tmp_path / "shared"))
    give_to(OPERATOR, root)
    return root


@pytest.mark.parametrize("damage", ["none", "bit", "owner", "mode", "record"])
def test_precompiled_headers_are_the_machines(
    damage: str, with_profile: Path, fresh_daemon: Callable[..., Daemon], context: Context
) -> None:
    (gch,) = with_profile.rglob("*.gch")
    if damage == "bit":
        with open(gch, "r+b") as file:
            file.seek(gch.stat().st_size // 2)
            file.write(b"\xff\x00\xff")
    elif damage == "owner":
        os.chown(gch, STRANGER, STRANGER)
    elif damage == "mode":
        gch.chmod(0o666)
    elif damage == "record":
        record = gch.with_name("profile")
        record.write_bytes(record.read_bytes()[:-1])
    daemon = fresh_daemon(ccache=False, shared_store=with_profile)
    connection = Connection(daemon, context)
    for number in range(100, 103):
        assert isinstance(connection.build(request(cpp_sources=[module_source(number)])), Built)
    daemon.wait_for_profiles(1)
    answer = connection.build(request(cpp_sources=[module_source(110)]))
    assert calls.load(answer, "tiny").answer() == 110
    status = daemon.status()
    (profile,) = status["profiles"]
    assert (profile["state"], profile["shared"]) == ("ready", damage == "none")
    assert status["accelerators"]["pch"]["used"] >= 1
    assert gch.exists() and daemon.ask(Cache(1, "verify")).data["damaged"] == 0


@pytest.mark.slow
def test_seed(fresh_daemon: Callable[..., Daemon], context: Context, tmp_path: Path) -> None:
    daemon = fresh_daemon()
    (tmp_path / "one.cpp").write_text(module_source(1, "one"))
    (tmp_path / "set.toml").write_text(
        '[[extension]]\nname = "one"\nsources = ["one.cpp"]\n\n[[extension]]\nname = "two"\n'
        'cpp_files = ["two.cpp"]\nno_implicit_headers = true\n'
    )
    (tmp_path / "two.cpp").write_text(module_source(2, "two"))
    three = {"name": "three", "cpp_sources": [module_source(3, "three")], "no_implicit_headers": True}
    (tmp_path / "more.json").write_text(json.dumps([three]))

    def seed(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "warmcc.client.cli", "seed", *words]
        return subprocess.run(command, env={**os.environ, **daemon.environment}, capture_output=True, text=True)

    done = seed(str(tmp_path))
    assert (done.returncode, "3 of 3 are there" in done.stderr) == (0, True), done
    done = seed(str(tmp_path / "set.toml"))
    assert done.stderr.count("hit ") == 2
    import warmcc  # what was seeded is what a call asks for

    code = f"import warmcc; m = warmcc.load_inline('three', {three['cpp_sources'][0]!r}, no_implicit_headers=True)"
    asked = subprocess.run(
        [sys.executable, "-c", f"{code}; print(m.answer())"], env={**os.environ, **daemon.environment},
        capture_output=True, text=True,
    )  # fmt: skip
    assert asked.stdout == "3\n", asked
    assert daemon.status()["requests"]["misses"] == 3
    assert warmcc.__version__

    (tmp_path / "bad.json").write_text(json.dumps([{**three, "name": "bad", "cpp_sources": ["int x"]}]))
    done = seed(str(tmp_path / "bad.json"))
    assert (done.returncode, "failed bad: Error building extension" in done.stderr) == (1, True), done
    for text, said in (
        ("[1]", "a set is a list of extensions"),
        ('[{"name": "x", "colour": 1, "cpp_sources": ["a"]}]', "load_inline has no argument 'colour'"),
        ('[{"name": "x", "cpp_files": ["none.cpp"]}]', "No such file"),
        ('[{"name": "x"}]', "there are no sources"),
        ("{", "cannot be read"),
    ):
        (tmp_path / "wrong.json").write_text(text)
        done = seed(str(tmp_path / "wrong.json"))
        assert (done.returncode, said in done.stderr) == (3, True), done

"""The shared store: an operator's daemon fills it, the others read it, and nobody else has a say."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests import calls
from tests.calls import Connection, module_source, request
from tests.daemons import Daemon
from warmcc import protocol
from warmcc.protocol import Built, Cache

Context = zmq.Context[zmq.Socket[bytes]]
OPERATOR, STRANGER = 4242, 4243
needs_root = pytest.mark.skipif(
    os.getuid() != 0, reason="only root may give files to others: run make test as root"
)


def give_to(uid: int, root: Path) -> None:
    for path in (root, *root.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)


@contextlib.contextmanager
def operator(root: Path, **settings: Any) -> Iterator[tuple[Daemon, Connection]]:
    """The daemon of someone who fills the shared store in this folder, with all that it builds
    unless it is set.
    """
    root.mkdir()
    root.chmod(0o755)
    daemon = Daemon(**{"ccache": False, "shared_store": root, "shared_publish": True, **settings})
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
        assert daemon.status()["shared_store"]["offered"] == 1
        lock = root / "daemon.lock"
        assert lock.stat().st_mode & 0o777 == 0o600, "who can open it can hold it"
        for path in {root, *root.rglob("*")} - {lock}:
            assert path.stat().st_mode & 0o044 == 0o044 or "staging" in path.parts, (
                f"{path} cannot be read by others"
            )
            assert not path.stat().st_mode & 0o022
    return root


@pytest.fixture
def filled(operators_result: Path, tmp_path: Path) -> Path:
    """The same, as the operator's own."""
    root = Path(shutil.copytree(operators_result, tmp_path / "shared"))
    give_to(OPERATOR, root)
    return root


@needs_root
def test_others_find_what_the_operator_built(
    filled: Path, fresh_daemon: Callable[..., Daemon], context: Context
) -> None:
    before = {path: path.stat().st_mtime_ns for path in filled.rglob("*")}
    daemon = fresh_daemon(shared_store=filled, shared_operator=str(OPERATOR), ccache=False)
    connection = Connection(daemon, context)
    answer = connection.build(request())
    assert isinstance(answer, Built) and answer.outcome == "hit"
    assert Path(answer.path).is_relative_to(daemon.cache_dir), "it is loaded from one's own store"
    assert calls.load(answer, "tiny").answer() == 42
    assert isinstance(connection.build(request(cpp_sources=[module_source(2)])), Built)
    status = daemon.status()
    assert (
        status["compiles"],
        status["shared_store"]["found"],
        status["shared_store"]["offered"],
    ) == (1, 1, 0)
    assert {path: path.stat().st_mtime_ns for path in filled.rglob("*")} == before, (
        "nothing was written"
    )


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


@needs_root
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
    damage: Callable[[Path], None],
    filled: Path,
    fresh_daemon: Callable[..., Daemon],
    context: Context,
) -> None:
    damage(filled)
    daemon = fresh_daemon(shared_store=filled, shared_operator=str(OPERATOR), ccache=False)
    answer = Connection(daemon, context).build(request())
    assert isinstance(answer, Built) and answer.outcome == "miss", answer
    assert calls.load(answer, "tiny").answer() == 42
    assert daemon.status()["shared_store"]["found"] == 0


@needs_root
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
    daemon = fresh_daemon(shared_store=filled, shared_operator=str(OPERATOR), ccache=False)
    answer = Connection(daemon, context).build(request())
    assert isinstance(answer, Built) and answer.outcome == "miss"
    assert daemon.status()["shared_store"]["refused"]


@needs_root
@pytest.mark.parametrize(
    ("owner", "setting", "said"),
    [
        (OPERATOR, "", "anybody could have made"),
        (OPERATOR, str(STRANGER), f"belongs to uid {OPERATOR}, and not to {STRANGER}"),
        (OPERATOR, "nobody-of-that-name", "there is no such user"),
        (OPERATOR, str(OPERATOR), None),
        (0, "", None),
        (0, "root", None),
    ],
)
def test_who_is_the_operator(
    owner: int,
    setting: str,
    said: str | None,
    filled: Path,
    fresh_daemon: Callable[..., Daemon],
    context: Context,
) -> None:
    """Below /tmp everybody can make a folder, and is its owner: that makes nobody the operator."""
    if owner == 0:
        give_to(owner, filled)
    place = Path(tempfile.mkdtemp(prefix="wcc-shared-", dir="/tmp"))
    try:
        place.rmdir()
        filled.rename(place)
        daemon = fresh_daemon(shared_store=place, shared_operator=setting, ccache=False)
        status = daemon.status()["shared_store"]
        assert (status["refused"] is None) == (said is None) and (said or "") in (
            status["refused"] or ""
        )
        answer = Connection(daemon, context).build(
            request(cpp_sources=[module_source(1000 + owner)])
        )
        assert isinstance(answer, Built)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def test_what_an_operator_builds_is_his_own(tmp_path: Path) -> None:
    """Unless it was built for everybody."""
    secret = request(cpp_sources=["// a secret\n" + module_source(1)])
    public = request(cpp_sources=["// for everybody\n" + module_source(2)])
    with operator(tmp_path / "shared", shared_publish=False) as (daemon, connection):
        assert isinstance(connection.build(secret), Built) and isinstance(
            connection.build(public), Built
        )
        assert daemon.status()["shared_store"]["offered"] == 0
        for number in range(3):
            assert isinstance(connection.build(request(cpp_sources=[module_source(number)])), Built)
        daemon.wait_for_profiles(1)
        connection.send(protocol.Build(100, public, publish=True))
        assert isinstance(connection.answer(), Built)
        assert daemon.status()["shared_store"]["offered"] == 1
    held = b"".join(
        path.read_bytes() for path in (tmp_path / "shared").rglob("*") if path.is_file()
    )
    assert b"for everybody" in held and b"a secret" not in held
    assert not (tmp_path / "shared" / "profiles").exists()


@pytest.mark.slow
def test_shared_profiles_have_a_limit(tmp_path: Path, context: Context) -> None:
    """The oldest go, as with those of a daemon's own."""
    profiles = tmp_path / "shared" / "profiles"

    def build(connection: Connection, more: str) -> None:
        for number in range(3):
            text = module_source(number).replace(
                "#include <Python.h>", f"#include <Python.h>\n{more}"
            )
            assert isinstance(connection.build(request(cpp_sources=[text])), Built)

    with operator(tmp_path / "shared", finished_pch=False) as (daemon, connection):
        build(connection, "")
        daemon.wait_for_profiles(1)
        (first,) = profiles.iterdir()
        limit = sum(file.stat().st_size for file in first.iterdir()) * 3 // 2
        daemon.stop()
        daemon.settings["profile_size"] = limit
        build(Connection(daemon.start(), context), "#include <cstddef>")
        deadline = time.monotonic() + 60
        while (there := {path.name for path in profiles.iterdir()}) in ({first.name}, set()) or len(
            there
        ) > 1:
            assert time.monotonic() < deadline, there
            time.sleep(0.2)
    (second,) = profiles.iterdir()
    assert second != first and sum(file.stat().st_size for file in second.iterdir()) <= limit


@pytest.fixture(scope="module")
def operators_profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shared store with the precompiled header of <Python.h>."""
    root = tmp_path_factory.mktemp("operator") / "shared"
    with operator(root) as (daemon, connection):
        for number in range(3):
            assert isinstance(connection.build(request(cpp_sources=[module_source(number)])), Built)
        daemon.wait_for_profiles(1)
    (folder,) = (root / "profiles").iterdir()
    assert {path.name for path in folder.iterdir()} == {
        "prelude.h",
        "prelude.h.gch",
        "prelude.h.gch.sum",
        "profile",
    }
    return root


@pytest.fixture
def with_profile(operators_profile: Path, tmp_path: Path) -> Path:
    """The same, as the operator's own."""
    root = Path(shutil.copytree(operators_profile, tmp_path / "shared"))
    give_to(OPERATOR, root)
    return root


@needs_root
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
    daemon = fresh_daemon(ccache=False, shared_store=with_profile, shared_operator=str(OPERATOR))
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
    three = {
        "name": "three",
        "cpp_sources": [module_source(3, "three")],
        "no_implicit_headers": True,
    }
    (tmp_path / "more.json").write_text(json.dumps([three]))

    def seed(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "warmcc.client.cli", "seed", *words]
        return subprocess.run(
            command, env={**os.environ, **daemon.environment}, capture_output=True, text=True
        )

    done = seed(str(tmp_path))
    assert (done.returncode, "3 of 3 built" in done.stderr) == (0, True), done
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

    (tmp_path / "bad.json").write_text(
        json.dumps([{**three, "name": "bad", "cpp_sources": ["int x"]}])
    )
    done = seed(str(tmp_path / "bad.json"))
    assert (done.returncode, "failed bad: Error building extension" in done.stderr) == (1, True), (
        done
    )
    for text, said in (
        ("[1]", "a set is a list of extensions"),
        (
            '[{"name": "x", "colour": 1, "cpp_sources": ["a"]}]',
            "load_inline has no argument 'colour'",
        ),
        ('[{"name": "x", "cpp_files": ["none.cpp"]}]', "No such file"),
        ('[{"name": "x"}]', "no sources given"),
        ("{", "cannot be read"),
    ):
        (tmp_path / "wrong.json").write_text(text)
        done = seed(str(tmp_path / "wrong.json"))
        assert (done.returncode, said in done.stderr) == (3, True), done

"""The shared store: an operator's daemon fills it, the others read it, and nobody else has a
say.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import zmq

from tests.support import calls
from tests.support.calls import Connection, module_source, request
from tests.support.daemons import Daemon
from tests.support.operators import OPERATOR, STRANGER, give_to, needs_root, operator
from warmcc import protocol
from warmcc.protocol import Built

Context = zmq.Context[zmq.Socket[bytes]]


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
        *(
            pytest.param(damage, marks=pytest.mark.slow)
            for damage in (
                damage_headers,
                strangers_artifact,
                open_artifact,
                linked_artifact,
                pipe_artifact,
            )
        ),
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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

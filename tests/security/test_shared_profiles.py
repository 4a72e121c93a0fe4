"""What an operator makes for a shared store: precompiled headers, and the results of a list."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zmq

from tests.support import calls
from tests.support.calls import Connection, module_source, request
from tests.support.daemons import Daemon
from tests.support.operators import OPERATOR, STRANGER, give_to, needs_root, operator
from warmcc.protocol import Built, Cache

Context = zmq.Context[zmq.Socket[bytes]]


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
@pytest.mark.parametrize(
    "damage",
    [
        "none",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("bit", "owner", "mode", "record")),
    ],
)
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

    code = (
        f"import warmcc; m = warmcc.load_inline('three', {three['cpp_sources'][0]!r}, "
        f"no_implicit_headers=True)"
    )
    asked = subprocess.run(
        [sys.executable, "-c", f"{code}; print(m.answer())"],
        env={**os.environ, **daemon.environment}, capture_output=True, text=True,
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

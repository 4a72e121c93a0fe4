"""Fixtures of the tests of the sandbox and of bundles."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import warmcc
from tests.support.bundling import PAIR
from tests.support.calls import module_source
from tests.support.daemons import Daemon
from warmcc.client.connection import session
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.system.sandbox import Sandbox, make_helper


@pytest.fixture
def roots(tmp_path: Path) -> Path:
    """The folder that builds may read; what lies beside it is secret."""
    (tmp_path / "secret.h").write_text('#error "the secret was read"\n')
    (tmp_path / "roots").mkdir()
    return tmp_path / "roots"


@pytest.fixture(scope="module", params=["C", "Python"])
def helper(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """What sets the rules: both have to do the same."""
    if request.param == "Python":
        return None
    made = make_helper(tmp_path_factory.mktemp("helper"))
    assert made is not None
    return made


@pytest.fixture
def runner(roots: Path, tmp_path: Path, helper: Path | None) -> Iterator[Runner]:
    (tmp_path / "staging").mkdir()
    (tmp_path / "own").mkdir()
    with contextlib.closing(
        Runner(sandbox=Sandbox([str(roots)], [tmp_path / "own"], tmp_path / "staging", helper))
    ) as one:
        yield one


@pytest.fixture(scope="module")
def bundle(daemon: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A bundle of two artifacts."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in daemon.environment.items():
            patch.setenv(name, value)
        session.forget()
        made = [
            warmcc.build_inline(name, module_source(answer, name), no_implicit_headers=True)
            for name, answer in PAIR.items()
        ]
        path = tmp_path_factory.mktemp("bundle") / "two.tar"
        warmcc.pack(path, made)
        yield path
        session.forget()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where bundles are unpacked, and offline."""
    monkeypatch.setenv("WARMCC_BUNDLES", str(tmp_path / "bundles"))
    monkeypatch.setenv("WARMCC_OFFLINE", "1")
    return tmp_path / "bundles"

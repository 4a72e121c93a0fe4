"""Fixtures of the sandbox's tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

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

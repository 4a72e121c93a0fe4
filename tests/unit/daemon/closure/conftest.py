"""Fixtures of closures and header sets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.closures import Project
from tests.support.headers import Include
from warmcc.daemon.closure.header_watch import HeaderWatch


@pytest.fixture(params=[True, False], ids=["watched", "unwatched"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path, watching=request.param)
    yield made
    made.watch.close()


@pytest.fixture
def include(tmp_path: Path) -> Include:
    return Include(tmp_path)


@pytest.fixture(params=[True, False], ids=["watched", "unwatched"])
def watch(request: pytest.FixtureRequest, include: Include) -> Iterator[HeaderWatch]:
    made = HeaderWatch(include.shelf.get, watching=request.param)
    assert made.status()["watching"] is request.param
    yield made
    made.close()

"""A client of the daemon that has warmed up, and a source file to edit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemons import Daemon
from warmcc.client.connection import session


@pytest.fixture
def client(warm: Daemon, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    for name, value in warm.environment.items():
        monkeypatch.setenv(name, value)
    session.forget()
    yield warm
    session.forget()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "kernel.cpp"

"""Calls in this process that reach the tests' daemon."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.daemons import Daemon
from warmcc.client.connection import session


@pytest.fixture
def served(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)
    session.forget()
    yield daemon
    session.forget()

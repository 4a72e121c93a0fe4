"""Fixtures for a user's calls: the daemon that they reach, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.caller import Caller
from tests.support.daemons import Daemon
from warmcc.client import notices
from warmcc.client.connection import session


@pytest.fixture
def nobody(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Path]:
    """No daemon, and none to be started; stock builds below ``tmp_path``."""
    runtime = tmp_path_factory.mktemp("r")
    runtime.chmod(0o700)
    monkeypatch.setenv("WARMCC_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("WARMCC_AUTOSTART", "0")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "stock"))
    monkeypatch.delenv("WARMCC_FALLBACK", raising=False)
    notices._given.clear()
    session.forget()
    yield runtime
    session.forget()


@pytest.fixture
def caller(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Caller:
    return Caller(daemon, monkeypatch)


@pytest.fixture
def caller_of_its_own(
    fresh_daemon: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch
) -> Caller:
    return Caller(fresh_daemon(), monkeypatch)


@pytest.fixture
def fresh_client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """This process has told its user nothing yet, and a stock path taken is an error."""
    monkeypatch.setattr(notices, "_given", set())
    monkeypatch.setenv("WARMCC_FALLBACK", "0")
    session.forget()
    yield
    session.forget()

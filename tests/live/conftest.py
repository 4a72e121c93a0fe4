"""A client of the daemon that has warmed up, and a source file to edit."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.daemons import Daemon
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


def write(path: Path, number: int, more: str = "") -> None:
    path.write_text(
        f"int number() {{ return {number}; }}\nat::Tensor f(at::Tensor x) {{ return x * {number}; }}\n{more}"
    )


def save_by_rename(path: Path, text: str) -> None:
    """As vim does: a new file takes the place of the old one."""
    draft = path.with_name(f".{path.name}.swp")
    draft.write_text(text)
    os.replace(draft, path)


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it does not come about"
        time.sleep(0.01)

"""Calls as a user makes them, of modules that build in a fraction of a second."""

from __future__ import annotations

from typing import Any

import pytest

import warmcc
from tests.support.calls import module_source
from tests.support.daemons import Daemon

TINY: dict[str, Any] = {"no_implicit_headers": True}


def tiny(name: str, answer: int = 42, before: str = "", **more: Any) -> Any:
    """The module of ``module_source``, with a text in front of it."""
    return warmcc.load_inline(name, before + module_source(answer, name), **{**TINY, **more})


def lead_to(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)

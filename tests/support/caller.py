"""This process as the client of one daemon that remembers what it was told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import warmcc
from tests.support.calls import module_source
from tests.support.daemons import Daemon

_UNTIL_REMEMBERED = 40

_SOURCE = (
    module_source(7, "NAMED")
    .replace('"NAMED"', '"tiny"')
    .replace("PyInit_NAMED", "INIT(TORCH_EXTENSION_NAME)")
)

SOURCE = "#define INIT(name) INIT_(name)\n#define INIT_(name) PyInit_##name\n" + _SOURCE


class Caller:
    """This process, as the client of one daemon."""

    def __init__(self, daemon: Daemon, patch: pytest.MonkeyPatch) -> None:
        self.daemon = daemon
        for name, value in daemon.environment.items():
            patch.setenv(name, value)

    def call(self, **changes: Any) -> Any:
        return warmcc.load_inline("tiny", SOURCE, no_implicit_headers=True, **changes)

    def asks(self, call: Callable[[], Any]) -> bool:
        """Whether the daemon is asked by a call."""
        before = self.daemon.status()["requests"]["total"]
        call()
        return bool(self.daemon.status()["requests"]["total"] != before)

    def remember(self, call: Callable[[], Any] | None = None) -> None:
        """Make a call until it is not asked of the daemon any more. It is asked once more whenever
        anything happens in a folder that is watched for other names, which another process may do
        at any time."""
        assert any(not self.asks(call or self.call) for _ in range(_UNTIL_REMEMBERED)), (
            "it is never remembered"
        )

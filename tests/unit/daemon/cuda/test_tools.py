"""When a unit's halves may run side by side."""

from __future__ import annotations

from typing import Any

import pytest

from warmcc.config import Config
from warmcc.daemon.cuda.tools import Tools
from warmcc.daemon.system.permits import Permits


@pytest.mark.parametrize(
    ("limit", "in_use", "free"),
    [(2, 1, False), (4, 3, True), (4, 4, False), (16, 3, True), (16, 15, True), (16, 16, False)],
)
def test_processors_that_other_builds_use_are_not_free(limit: int, in_use: int, free: bool) -> None:
    unused: Any = None
    permits = Permits(limit, 1)
    permits.in_use = in_use
    tools = Tools(Config(), unused, unused, unused, unused, permits)
    assert tools.has_free_processors is free

"""How many steps a machine is given."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from warmcc.daemon.system import resources
from warmcc.daemon.system.permits import Permits


@pytest.mark.parametrize(("count", "steps"), [(1, 2), (2, 3), (3, 5), (16, 18)])
def test_as_many_steps_as_ninja_runs(
    count: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stock has ninja choose: a package of 17 files on 16 cores is built in one go."""
    monkeypatch.setattr(resources, "processors", lambda: count)
    assert resources.steps() == Permits(0, 1 << 30).limit == steps
    assert Permits(7, 1 << 30).limit == 7


@pytest.mark.parametrize(
    ("told", "count"),
    [("max 100000", 16), ("200000 100000", 2), ("150000 100000", 2), ("5000 100000", 1),
        ("9900000 100000", 16),
     ("", 16), ("what", 16), ("1 0", 16), (None, 16)],
)  # fmt: skip
def test_a_quota_of_a_container(
    told: str | None, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    monkeypatch.setattr(resources, "_QUOTA", str(tmp_path / "cpu.max"))
    if told is not None:
        (tmp_path / "cpu.max").write_text(told)
    assert resources.processors() == count

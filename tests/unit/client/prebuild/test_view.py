"""What a person sees of a run: lines, or a bar."""

from __future__ import annotations

import pytest

from warmcc.client.cli.display.variants import Bar, View, choose
from warmcc.client.prebuild.api import Progress

STEPS = [
    Progress("n=1", "kept", 1, 4, 0, 0, 0.1),
    Progress("n=2", "miss", 2, 4, 0, 1, 30.0),
    Progress("n=3", "failed", 3, 4, 1, 1, 60.0),
]


def test_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with choose("pack", 4) as view:
        assert type(view) is View, "standard error is no terminal here"
        for step in STEPS:
            view.show(step)
    assert capsys.readouterr().err.splitlines() == [
        "1/4 kept   n=1",
        "2/4 miss   n=2, 2.0 a minute, 1 min 0 s left",
        "3/4 failed n=3, 2.0 a minute, 30.0 s left, 1 failed",
    ]


def test_a_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with Bar("pack", 4) as view:
        for step in STEPS:
            view.show(step)
    shown = capsys.readouterr().err
    assert "failed n=3" in shown
    for part in ("pack", "3/4", "2.0 a minute, 30.0 s left, 1 failed"):
        assert part in shown, shown

"""One finding of a check, and the questions that several checks put to programs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """One line: ``state`` is ok, note (could be better) or bad.
    ``fix`` repairs it, and returns what it did."""

    title: str
    state: Literal["ok", "note", "bad"]
    text: str
    advice: str = ""
    fix: Callable[[], str] | None = None


def first_line(*command: str) -> str:
    """The first line that a program prints, or nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout or done.stderr).partition("\n")[0] if done.returncode == 0 else ""


def output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""

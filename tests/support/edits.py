"""A source file, edited as editors do it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def write(path: Path, number: int, more: str = "") -> None:
    path.write_text(
        f"int number() {{ return {number}; }}\n"
        f"at::Tensor f(at::Tensor x) {{ return x * {number}; }}\n"
        f"{more}"
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

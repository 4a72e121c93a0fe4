"""The pages of the documentation, and the blocks of code on them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import warmcc
from tests.support.daemons import Daemon

TOP = Path(warmcc.__file__).parents[1]
PAGES = [
    *(TOP / name for name in ("README.md", "CONTRIBUTING.md")),
    TOP / "examples" / "README.md",
    *sorted((TOP / "docs").glob("*/*.md")),
]
LANGUAGES = ("sh", "python", "ipython")  # those that are run
_FENCE = re.compile(r"^( *)```(\w*)(?: title=\"([^\"]+)\")?[^\n]*\n(.*?)^\1```$", re.M | re.S)
_NOT_RUN = re.compile(r"<!-- not run: ([^>]+) -->\n+ *\Z")
_CUDA = re.compile(r"\w\.cu\b|cuda_sources|--cuda\b")


@dataclass(frozen=True)
class Block:
    """A block of code: its ``title`` is the file that it is written to before it is used, and
    ``not_run`` the reason why no test runs it."""

    line: int
    language: str
    title: str
    text: str
    not_run: str

    @property
    def runs(self) -> bool:
        return self.language in LANGUAGES and not self.title and not self.not_run

    @property
    def is_cuda(self) -> bool:
        return _CUDA.search(self.text) is not None


def name_of(page: Path) -> str:
    return os.path.relpath(page, TOP)


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        told = _NOT_RUN.search(text[: found.start()])
        line = text.count("\n", 0, found.start()) + 2
        body = re.sub(rf"^{found[1]}", "", found[4], flags=re.M)
        yield Block(line, found[2], found[3] or "", body, told[1] if told else "")


def has_runs(page: Path, *, cuda: bool) -> bool:
    return any(block.runs and block.is_cuda == cuda for block in blocks(page))


def run(
    page: Path,
    folder: Path,
    daemon: Daemon,
    *,
    cuda: bool,
    files: dict[str, str] | None = None,
    given: str = "",
    seconds: float = 300.0,
) -> None:
    """Run the blocks of a page in their order, in one folder, with one namespace for its Python.

    ``files`` are those that the page mentions and does not show, ``given`` is Python for the names
    that it uses and does not define. Commands that start, stop or empty a daemon get another one,
    with folders of its own.
    """
    work, programs = folder / "work", folder / "bin"
    for place in (work, programs, folder / "home"):
        place.mkdir(parents=True)
    (work / "benchmarks").symlink_to(TOP / "benchmarks")
    for name, text in (files or {}).items():
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (programs / "warmcc").write_text(
        f'#!/bin/sh\nexec {sys.executable} -m tests.support.command_of_page "$@"\n'
    )
    (programs / "warmcc").chmod(0o755)
    steps = [
        asdict(block)
        for block in blocks(page)
        if block.title or (block.runs and block.is_cuda == cuda)
    ]
    own = {f"OWN_{name}": str(folder / "own" / name.lower()) for name in ("CACHE_DIR", "STATE_DIR")}
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("WARMCC_")},
        **daemon.environment,
        **own,
        "OWN_RUNTIME_DIR": str(daemon.folder / "own"),
        "HOME": str(folder / "home"),
        "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(TOP),
        "COLUMNS": "100",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.run_page"],
        input=json.dumps({"page": name_of(page), "given": given, "steps": steps}),
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-6000:]}"

"""The documentation: its links lead somewhere, its commands and its Python exist, and the site
builds.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import warmcc
from warmcc.client import cli

TOP = Path(warmcc.__file__).parents[1]
PAGES = [TOP / "README.md", TOP / "CONTRIBUTING.md", *sorted((TOP / "docs").glob("*.md"))]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    titles = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    linked = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"(?:src|srcset)=\"([^\"]+)\"", text)
    for link in linked:
        if re.match(r"https?:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.M | re.S)


def commands() -> Iterator[tuple[str, str]]:
    """Each command of warmcc in a block for a shell, with the page that it is on."""
    for page in PAGES:
        for line in "".join(blocks(page, "sh")).splitlines():
            for part in re.split(r"&&|\|\||;", line.split("  #")[0]):
                words = part.replace("sudo ", "").strip()
                if words.startswith("warmcc "):
                    yield page.name, re.sub(r"\[[^\]]*\]", "", words)


@pytest.mark.parametrize(("page", "line"), sorted(set(commands())))
def test_commands_exist(page: str, line: str) -> None:
    words = shlex.split(line.split(" > ")[0].split(" | ")[0])
    assert words[1] in cli.COMMANDS, line
    known = cli.help_of(words[1])
    for word in words[2:]:
        if word.startswith("-"):
            assert re.search(rf"(?<![\w-]){re.escape(word.partition('=')[0])}(?![\w-])", known), (
                f"{line}: {word}"
            )


@each_page
def test_python_is_python(page: Path) -> None:
    for text in blocks(page, "python"):
        plain = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("%"))
        for node in ast.walk(ast.parse(plain)):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "warmcc"
            ):
                assert hasattr(warmcc, node.attr), node.attr


@pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None,
    reason="mkdocs is not installed (make docs installs it)",
)
def test_the_site_builds(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir",
            tmp_path / "site"],
        cwd=TOP, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    settings = (tmp_path / "site" / "reference" / "settings" / "index.html").read_text()
    assert "cuda_fork_memory" in settings and "12 GiB" in settings
    python = (tmp_path / "site" / "reference" / "python" / "index.html").read_text()
    assert all(f"warmcc.{name}" in python for name in warmcc.__all__ if name != "__version__")
    commands = (tmp_path / "site" / "reference" / "commands" / "index.html").read_text()
    assert all(f"warmcc {name}" in commands for name in cli.COMMANDS)

"""The documentation: its links lead somewhere, the files and commands that it names exist, its
prose has one sentence per line, and the site builds. Its commands and its Python run in
``test_docs_run.py``.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import warmcc
from tests.support.pages import LANGUAGES, PAGES, TOP, blocks, name_of
from warmcc import config
from warmcc.client import cli

PROSE = [*PAGES, TOP / "CHANGELOG.md"]
each_page = pytest.mark.parametrize("page", PAGES, ids=name_of)
CODE = re.compile(r"^ *```.*?^ *```", re.M | re.S)

# Blocks that no test runs, by the reason that stands above them in the page. A new one has to be
# counted here.
NOT_RUN = {
    "installs packages": 3,
    "needs CMake": 1,
    "needs a GPU": 1,
    "needs a cluster": 3,
    "needs root and systemd": 9,
    "needs systemd, and root for --system": 1,
    "needs systemd": 1,
    "removes the package under test": 1,
    "sets up an environment and runs the whole test suite": 1,
    "the shared test daemon keeps its settings": 3,
    "takes minutes to hours": 6,
    "takes about ten minutes, and installs mutmut": 1,
}

# Blocks in other languages: for an editor, a CI service, a container's builder, and changes.
ONLY_SHOWN = {"diff": 2, "dockerfile": 1, "json": 1, "lua": 1, "yaml": 1}


def sentences() -> object:
    spec = importlib.util.spec_from_file_location("sentences", TOP / "docs" / "sentences.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", CODE.sub("", page.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    text = CODE.sub("", page.read_text())
    linked = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"(?:src|srcset)=\"([^\"]+)\"", text)
    for link in linked:
        if re.match(r"https?:", link) or link.startswith("../reference/"):  # made with the site
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PROSE, ids=name_of)
def test_one_sentence_per_line(page: Path) -> None:
    assert sentences().faults(page.read_text()) == []  # type: ignore[attr-defined]


def test_sentences_are_told_apart() -> None:
    """Of the check itself: it finds both faults, and leaves code, tables and links alone."""
    module = sentences()
    faults, reflowed = module.faults, module.reflowed  # type: ignore[attr-defined]
    assert len(faults("One. Two.\n")) == 1
    assert len(faults("This ends\nhere.\n")) == 1
    assert len(faults("- An item. And more\n  in it.\n")) == 2
    good = (
        "Torch 2.4 is fine (see a. b. c), `x. y` and [a. b](c. d) too.\n\n"
        "| a. b | c |\n\n```sh\na. b\n```\n"
    )
    assert faults(good) == [] and reflowed(good) == good
    assert reflowed("1. One\n   goes on. Two.\n\n> A. B.\n") == (
        "1. One goes on.\n   Two.\n\n> A.\n> B.\n"
    )


@pytest.mark.parametrize("page", PROSE, ids=name_of)
def test_plain_english(page: Path) -> None:
    """Translated idiom that has crept in before."""
    text = re.sub(r"`[^`]*`|^\|.*$", "", CODE.sub("", page.read_text()), flags=re.M)
    idiom = (
        r"\b(?:anew|for ever|shall|mend(?:s|ed|ing)?|nobody|whoever|as ever|of (?:its|their) own)\b"
    )
    assert re.findall(idiom, text) == []


@each_page
def test_the_first_line_says_what_a_page_answers(page: Path) -> None:
    title, blank, first, *_ = page.read_text().splitlines()
    assert title.startswith("# ") and blank == ""
    assert re.match(r"[*A-Z]", first), first


@each_page
def test_files_that_are_named_exist(page: Path) -> None:
    """Modules and pages by their path, tests by their name alone; not those that the page
    writes.
    """
    text = CODE.sub("", page.read_text())
    tests = {path.name for path in (TOP / "tests").rglob("*")}
    tests |= {path.name for path in page.parent.iterdir()} | {one.title for one in blocks(page)}
    for name in re.findall(r"`([\w./-]+\.(?:py|c|cc|h|md))`", text):
        top, _, rest = name.partition("/")
        if top == "tests" or name.startswith("test_"):
            assert name in tests or name.rpartition("/")[2] in tests, name
        elif rest and top in ("daemon", "client", "warmcc", "docs", "systemd", "benchmarks"):
            assert (TOP / name).exists(), name


def commands() -> Iterator[tuple[str, str]]:
    """Each command of warmcc in a block for a shell, with the page that it is on."""
    for page in PAGES:
        for block in blocks(page):
            for line in block.text.splitlines() if block.language == "sh" else ():
                for part in re.split(r"&&|\|\||;", line.split("  #")[0]):
                    words = re.sub(r"^(sudo|until) ", "", part.strip())
                    if words.startswith("warmcc "):
                        yield name_of(page), words


@pytest.mark.parametrize(("page", "line"), sorted(set(commands())))
def test_commands_exist(page: str, line: str) -> None:
    """Those that no test runs, too."""
    words = shlex.split(re.split(r" [<>|] ", line)[0])
    assert words[1] in cli.COMMANDS, line
    known = cli.help_of(words[1])
    others = words.index("--") if "--" in words else len(words)  # of another command
    for word in words[2:others]:
        if word.startswith("-"):
            assert re.search(rf"(?<![\w-]){re.escape(word.partition('=')[0])}(?![\w-])", known), (
                f"{line}: {word}"
            )


@each_page
def test_code_is_code(page: Path, tmp_path: Path) -> None:
    """Python parses, and names that exist; TOML is a set of extensions, or valid settings."""
    for block in blocks(page):
        if block.language == "python":
            for node in ast.walk(ast.parse(block.text)):
                if (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.value, ast.Name)
                    and node.value.id == "warmcc"
                ):
                    assert hasattr(warmcc, node.attr), node.attr
        elif block.language == "json":
            json.loads(block.text)
        elif (
            block.language == "toml"
            and block.title != "spec.toml"  # of warmcc prebuild, which runs it
            and "extension" not in config.tomllib.loads(block.text)
        ):
            (tmp_path / "config.toml").write_text(block.text)
            config.load(tmp_path / "config.toml", {})


def test_settings_and_variables_that_are_named_exist() -> None:
    known = {f"WARMCC_{name.upper()}" for name in config.Config.__struct_fields__}
    source = "".join(
        path.read_text()
        for folder in ("client", "daemon", "warmcc", "benchmarks", "tests", "docs")
        for path in (TOP / folder).rglob("*.py")
    )
    for page in PAGES:
        for name in set(re.findall(r"\bWARMCC_[A-Z_]+[A-Z]\b", page.read_text())):
            assert name in known or name in source, f"{page}: {name}"


def test_blocks_that_do_not_run_are_counted() -> None:
    found = Counter(
        block.not_run
        for page in PAGES
        for block in blocks(page)
        if block.not_run and block.language in LANGUAGES
    )
    assert found == NOT_RUN


def test_languages_of_blocks_are_known() -> None:
    """No command hides in a block that is not run, and C++ is a file that one uses."""
    found = Counter(block.language for page in PAGES for block in blocks(page))
    shown = {"", "text", "toml", "cpp", *LANGUAGES}
    assert {name: count for name, count in found.items() if name not in shown} == ONLY_SHOWN
    assert all(block.title for page in PAGES for block in blocks(page) if block.language == "cpp")


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

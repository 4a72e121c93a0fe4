"""The generated pages of the site: README and CONTRIBUTING, and references made from the code."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import msgspec

import warmcc
from warmcc.client import cli
from warmcc.config import Config

TOP = Path(__file__).parents[1]
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./\.\./([^)#]+)\)")


def on_files(files: Any, config: Any) -> Any:
    """Called by mkdocs once it has found the files."""
    from mkdocs.structure.files import File

    for uri, made in (
        ("index.md", start),
        ("internals/contributing.md", contributing),
        ("reference/settings.md", settings),
        ("reference/commands.md", commands),
        ("reference/python.md", python),
    ):
        files.append(File.generated(config, uri, content=made()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for each page. Files outside of docs/ are not pages: their names stand
    in place of links.
    """
    return _OUTSIDE.sub(
        lambda found: found[1] if found[2] in found[1] else f"{found[1]} (`{found[2]}`)", markdown
    )


def start() -> str:
    """The README, with its links relative to the site's first page."""
    text = (TOP / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"(\(|\"|, )docs/", r"\1", text)
    text = text.replace("(CONTRIBUTING.md)", "(internals/contributing.md)")
    return re.sub(r"\[([^\]]+)\]\((examples[^)]*)\)", r"\1", text)


def contributing() -> str:
    """CONTRIBUTING.md, with its links relative to internals/."""
    text = (TOP / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return text.replace("(docs/internals/", "(").replace("(docs/", "(../")


def settings() -> str:
    """Every setting with its default and its meaning, from ``warmcc.config.Config``."""
    meanings = _meanings()
    rows = [
        f"| `{field.name}` | `{_shown(field)}` | {meanings[field.name]} |"
        for field in msgspec.structs.fields(Config)
    ]
    return "\n".join(
        [
            "# Settings",
            "",
            "Which settings are there, and what are their defaults?",
            "They are read from `config.toml` (`warmcc config path` prints its path) and from "
            "variables such as `WARMCC_STORE_SIZE=2GiB`, which take precedence.",
            "`warmcc config check` reports errors, `warmcc config show` prints every value with "
            "its source.",
            "",
            "| setting | default | meaning |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def _meanings() -> dict[str, str]:
    found: dict[str, str] = {}
    for names, meaning in re.findall(
        r"^(\w+(?:, \w+)*)\s{2,}(.+)$", inspect.cleandoc(Config.__doc__ or ""), re.M
    ):
        found |= dict.fromkeys(names.split(", "), meaning)
    return found


def _shown(field: Any) -> str:
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value >= 1 << 20 and value % (1 << 19) == 0:
        gib = value / (1 << 30)
        return f"{gib:g} GiB" if gib >= 1 else f"{value >> 20} MiB"
    return (
        str(value) if not isinstance(value, (str, list)) else str(value).replace("'", '"') or '""'
    )


def commands() -> str:
    """The help of every command, as argparse writes it."""
    question = (
        "Which commands and options are there? This is the output of `warmcc COMMAND --help`."
    )
    parts = ["# Commands", "", question, "", "```text", cli.help_of(None).rstrip(), "```", ""]
    for name in cli.COMMANDS:
        parts += [f"## warmcc {name}", "", "```text", cli.help_of(name).rstrip(), "```", ""]
    return "\n".join(parts)


def python() -> str:
    """The public names of ``warmcc``, with their signatures and docstrings."""
    question = "Which functions and classes does the package offer?"
    parts = ["# Python", "", question, "", inspect.cleandoc(warmcc.__doc__ or ""), ""]
    for name in warmcc.__all__:
        if name.startswith("__"):
            continue
        value = getattr(warmcc, name)
        signature = (
            ""
            if inspect.isclass(value) or inspect.ismodule(value)
            else str(inspect.signature(value)).replace(", ", ",\n    ")
        )
        opened = signature.replace("(", "(\n    ", 1) if len(signature) > 60 else signature
        parts += [
            f"## warmcc.{name}",
            "",
            "```python",
            f"{name}{opened}",
            "```",
            "",
            inspect.getdoc(value) or "",
            "",
        ]
    return "\n".join(parts)

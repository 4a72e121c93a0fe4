"""``warmcc config``: every setting, and where it comes from."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from warmcc import config, paths
from warmcc.client.cli.display.output import as_json, table


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", choices=["show", "path", "check"],
        help="show: all settings; path: the file's location; check: report invalid settings",
    )  # fmt: skip


def cmd_config(arguments: argparse.Namespace) -> int:
    file = paths.config_file()
    if arguments.action == "path":
        if arguments.json:
            as_json({"path": str(file), "exists": file.exists()})
        else:
            print(file)
        return 0
    if arguments.action == "check":
        config.load()
        where = str(file) if file.exists() else f"{file} does not exist; the defaults apply"
        as_json(
            {"path": str(file), "exists": file.exists(), "ok": True}
        ) if arguments.json else print(f"ok: {where}")
        return 0
    settings = config.shown(config.load())
    plain = config.shown(config.load(Path(os.devnull), {}))
    in_file = config.shown(config.load(file, {}))
    sources = {}
    for name in settings:
        if f"WARMCC_{name.upper()}" in os.environ:
            sources[name] = f"WARMCC_{name.upper()}"
        else:
            sources[name] = str(file) if in_file[name] != plain[name] else "default"
    if arguments.json:
        as_json(
            {name: {"value": value, "source": sources[name]} for name, value in settings.items()}
        )
    else:
        table(
            [
                ("SETTING", "VALUE", "FROM"),
                *((name, str(value), sources[name]) for name, value in settings.items()),
            ]
        )
    return 0

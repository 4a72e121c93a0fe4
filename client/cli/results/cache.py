"""``warmcc cache``: the daemon does the work, because only it writes to the store; ``clear --all``
stops the daemon and removes everything that it has written.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from warmcc.client.cli.display.output import as_json, duration, size, table
from warmcc.errors import ConfigError


def add_cache(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", choices=["ls", "verify", "prune", "clear"],
        help="ls: list; verify: check every file; prune: evict the least used; clear: remove all"
        " results that are not in use",
    )  # fmt: skip
    parser.add_argument(
        "--size",
        metavar="SIZE",
        help="prune down to this size, such as 2GiB (default: the setting)",
    )
    parser.add_argument(
        "--all", action="store_true",
        help="with clear: stop the daemon, and remove all files that it has written",
    )  # fmt: skip


def cmd_cache(arguments: argparse.Namespace) -> int:
    from warmcc import config
    from warmcc.client.connection.session import Session
    from warmcc.protocol import Cache

    limit = None
    if arguments.size is not None:
        if arguments.action != "prune":
            raise ConfigError("--size goes with: warmcc cache prune")
        limit = config.parse_size(arguments.size)
    if arguments.all:
        if arguments.action != "clear":
            raise ConfigError("--all goes with: warmcc cache clear")
        return _clear_all(arguments)
    with Session(autostart=True) as session:
        data = session.ask(lambda number: Cache(number, arguments.action, limit)).data
    if arguments.json:
        as_json(data)
    else:
        _show(arguments.action, data)
    return 1 if data.get("damaged") else 0


def _clear_all(arguments: argparse.Namespace) -> int:
    from warmcc import paths
    from warmcc.client.cli.results.clear import clear_all

    done = clear_all()
    if arguments.json:
        as_json(
            {
                "stopped": done.stopped,
                "removed": done.removed,
                "bytes": done.bytes,
                "kept": done.kept,
            }
        )
        return 0
    if done.stopped is not None:
        print(f"stopped the daemon (process {done.stopped})")
    for path in done.removed:
        print(f"removed {path}")
    for path in done.kept:
        is_bundles = path == str(paths.bundles_dir())
        reason = "bundles; see warmcc bundles" if is_bundles else "warmcc did not create it"
        print(f"kept {path}: {reason}")
    print(f"{size(done.bytes)} freed" if done.removed else "there was nothing to remove")
    return 0


def _show(action: str, data: dict[str, Any]) -> None:
    if action == "ls":
        rows = [("NAME", "KIND", "SIZE", "USED", "KEY")]
        for row in data["entries"]:
            used = duration(max(0.0, time.time() - row["used"])) + " ago"
            rows.append((row["name"] or "-", row["kind"], size(row["size"]), used, row["key"][:12]))
        table(rows, right=(2,))
    else:
        print(
            ", ".join(
                f"{name} {size(value) if 'bytes' in name else value}"
                for name, value in data.items()
            )
        )

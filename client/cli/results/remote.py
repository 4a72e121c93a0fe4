"""``warmcc remote``: the daemon tries its remote store, with its own settings and credentials."""

from __future__ import annotations

import argparse

from warmcc.client.cli.display.output import as_json, duration
from warmcc.errors import ConfigError, DaemonError, VersionMismatch


def add_remote(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", choices=["check"],
        help="check: have the daemon write, read and delete a few bytes in the remote store",
    )  # fmt: skip


def cmd_remote(arguments: argparse.Namespace) -> int:
    from warmcc import config
    from warmcc.client.connection.session import Session
    from warmcc.protocol import Cache

    wanted = config.without_password(config.load().remote)
    with Session(autostart=True) as session:
        if "remote" not in session.welcome.capabilities:
            raise VersionMismatch(
                "the daemon that runs is of an older version, which has no remote store.\n"
                "Restart it with: warmcc stop; warmcc start"
            )
        data = session.ask(lambda number: Cache(number, "remote")).data
    used = data.get("url", "")
    if used != wanted:
        raise DaemonError(
            f"the daemon that runs uses {used or 'no remote store'}, and the settings name "
            f"{wanted or 'none'}.\nRestart it with: warmcc stop; warmcc start"
        )
    if not used:
        raise ConfigError(
            "there is no remote store: set remote in the configuration, or WARMCC_REMOTE, to a "
            "folder or a URL"
        )
    if data["problem"]:
        raise DaemonError(f"the remote store {used} cannot be used: {data['problem']}")
    if arguments.json:
        as_json(data)
        return 0
    done = "written, read and deleted" if data["writes"] else "read (nothing is written)"
    print(f"ok: {used} can be {done}, in {duration(data['seconds'])}")
    return 0

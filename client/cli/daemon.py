"""``warmcc start``, ``stop`` and ``version``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from warmcc import paths
from warmcc.client.cli.display.output import as_json, talk
from warmcc.client.run import running
from warmcc.errors import DaemonTimeout, DaemonUnavailable
from warmcc.version import __version__

STOP_SECONDS = 30.0


def add_start(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--foreground", action="store_true", help="stay in the foreground and log to the terminal"
    )


def cmd_start(arguments: argparse.Namespace) -> int:
    from warmcc.client.connection.session import Session

    try:
        with Session(autostart=False) as session:
            talk(
                f"already running (process {session.welcome.pid}, warmcc {session.welcome.version})"
            )
            return 0
    except DaemonUnavailable:
        pass
    if arguments.foreground:
        os.execve(
            sys.executable,
            [sys.executable, "-m", "warmcc.daemon"],
            {**os.environ, **paths.settle()},
        )
    with Session(autostart=True) as session:
        talk(f"started (process {session.welcome.pid}); its log: {paths.log_path()}")
    return 0


def cmd_stop(_arguments: argparse.Namespace) -> int:
    pid = stop_running()
    if ended := running.end_all():
        talk(f"{ended} zygotes of warmcc run end with their last program")
    talk("the warmcc daemon is not running" if pid is None else f"stopped (process {pid})")
    return 0


def stop_running() -> int | None:
    """Stop the daemon and wait for its end; its process, or None when there is none. Raises
    DaemonError."""
    from warmcc.client.connection.session import Session
    from warmcc.protocol import Stop

    try:
        with Session(autostart=False) as session:
            pid = session.welcome.pid
            session.ask(Stop)
    except DaemonUnavailable:
        return None
    deadline = time.monotonic() + STOP_SECONDS
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() > deadline:
            raise DaemonTimeout(
                f"process {pid} did not exit within {STOP_SECONDS:g} s; its log: {paths.log_path()}"
            )
        time.sleep(0.02)
    return pid


def cmd_version(arguments: argparse.Namespace) -> int:
    from warmcc.client.connection.session import Session
    from warmcc.protocol import PROTOCOL

    try:
        with Session(autostart=False) as session:
            daemon = session.welcome.version
    except DaemonUnavailable:
        daemon = None
    if arguments.json:
        as_json({"warmcc": __version__, "protocol": PROTOCOL, "daemon": daemon})
    else:
        print(f"warmcc {__version__}, protocol {PROTOCOL}, daemon {daemon or 'not running'}")
    return 0

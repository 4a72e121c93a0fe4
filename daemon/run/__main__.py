"""``python -m warmcc.daemon.run``: this process becomes a zygote.

Its standard input says in JSON for whom (``client/run/start.py``). The settings are read here, and
the zygote that was used least ends where there would be too many.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from warmcc import runs
from warmcc.daemon.run.start import fail

# As a script's name this is nothing that exists; it is found in memory (main_config.py).
_PLACEHOLDER = "/warmcc-zygote"


def main() -> None:
    from warmcc import config
    from warmcc.errors import ConfigError

    told = json.load(sys.stdin)
    devnull = os.open(os.devnull, os.O_RDWR)
    os.dup2(devnull, 0, inheritable=True)
    starting = os.open(
        os.path.join(told["folder"], runs.STARTING), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600
    )
    try:
        fcntl.flock(starting, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # one at a time, however many are wanted
    try:
        settings = config.load()
    except ConfigError as error:
        fail(told, str(error))
    if settings.run_zygotes == 0:
        fail(told, "the setting run_zygotes is 0")
    modules = settings.run_torch if told["profile"] == "torch" else settings.run_compile
    modules = [*modules, *filter(None, [runs.HOOKS.get(told["profile"])])]
    told |= {
        "modules": ",".join(modules), "idle": str(settings.run_idle), "starting": str(starting),
    }  # fmt: skip
    _make_room(told["folder"], settings.run_zygotes)
    become_zygote(told)


def become_zygote(told: dict[str, Any]) -> NoReturn:
    """Replace this process by the zygote. Nothing of this needs more than a bare Python."""
    told["placeholder"] = f"{_PLACEHOLDER}-{told['profile']}"
    for name in ("starting", "lock"):
        os.set_inheritable(int(told[name]), True)
    environment = dict(os.environ)
    here = str(Path(__file__).parent / "at_start")
    told["pythonpath"] = before = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = here + (f":{before}" if before else "")
    environment[runs.ONE_STARTS] = json.dumps(told)
    os.execve(told["python"], [told["python"], told["placeholder"]], environment)


def _make_room(folder: str, limit: int) -> None:
    """End those that were used least, by the times of their sockets' files."""
    sockets = sorted(Path(folder).glob(f"*{runs.SOCKET}"), key=lambda path: path.stat().st_mtime)
    for path in sockets[: max(0, len(sockets) - limit + 1)]:
        runs.ask(str(path), runs.END)


if __name__ == "__main__":
    main()

"""The zygotes of ``warmcc run`` that are there: shown by ``warmcc status``, ended by
``warmcc stop``.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from warmcc import paths, runs, status
from warmcc.errors import DaemonError


def sockets() -> list[Path]:
    """The sockets of all zygotes."""
    try:
        return sorted((paths.runtime_dir() / runs.FOLDER).glob(f"*{runs.SOCKET}"))
    except (DaemonError, OSError):
        return []


def report() -> list[status.RunZygote]:
    """One row for each that answers."""
    found = []
    for path in sockets():
        words = runs.ask(str(path), runs.STATUS).split()
        with contextlib.suppress(ValueError, IndexError, OSError):
            pid, jobs, running, profile = int(words[0]), int(words[1]), int(words[2]), words[3]
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            facts = path.with_suffix(runs.FACTS).read_bytes().split(b"\0")
            python = next((one[7:] for one in facts if one.startswith(b"python=")), b"")
            rss = pages * os.sysconf("SC_PAGE_SIZE")
            found.append(status.RunZygote(pid, profile, os.fsdecode(python), rss, jobs, running))
    return found


def end_all() -> int:
    """Have all end, each with the last program that runs in it; how many there were."""
    found = sockets()
    for path in found:
        runs.ask(str(path), runs.END)
    return len(found)

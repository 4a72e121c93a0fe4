"""Start a daemon when none runs.
Races are settled by the daemon's own lock: whoever comes second ends at once.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from warmcc import paths
from warmcc.client.connection.offline import is_offline
from warmcc.client.connection.timeouts import START_SECONDS
from warmcc.errors import DaemonError, DaemonTimeout, DaemonUnavailable
from warmcc.request import KEYED_ENVIRONMENT, PASSED_ENVIRONMENT, without_launcher

_POLL_SECONDS = 0.02
_TAIL_LINES = 15
_PREFIXES = ("WARMCC_", "XDG_", "CCACHE_")

# The daemon is started by a process that ends at once, so that it is nobody's child: a caller that
# waits for its own children does not meet it, and it leaves no zombie in a caller that lives
# longer.
_LAUNCHER = """
import os, sys
if pid := os.fork():
    print(pid)
else:
    os.dup2(2, 1)
    os.execv(sys.argv[1], sys.argv[1:])
"""


def until(opens: Callable[[], bool]) -> None:
    """Start a daemon, or wait for the one that another process starts, until ``opens()`` is true.

    Ours may end at once because another holds the lock: one that starts (it will answer soon) or
    one that ends (then ours must be started again). A second one of ours that ends although nobody
    holds the lock is a failure. Raises DaemonUnavailable, DaemonTimeout.
    """
    if is_offline():
        raise DaemonUnavailable("WARMCC_OFFLINE is set, so no daemon is started")
    deadline = time.monotonic() + START_SECONDS
    ours: Started | None = None
    ended = 0
    while not opens():
        if (ours is None or ours.ended()) and not lock_is_held():
            if ours is not None and (ended := ended + 1) == 2:
                raise DaemonUnavailable(f"the daemon failed to start:\n{ours.log()}")
            ours = spawn()
        if time.monotonic() > deadline:
            said = f":\n{ours.log()}" if ours is not None else f"; its log: {paths.log_path()}"
            raise DaemonTimeout(
                f"the daemon did not answer within {START_SECONDS:g} s of its start{said}"
            )
        time.sleep(_POLL_SECONDS)


@dataclass(frozen=True)
class Started:
    """A daemon process on its way; ``log_start`` is where its part of the log begins."""

    pid: int
    log_start: int

    def ended(self) -> bool:
        return not _runs(self.pid)

    def log(self) -> str:
        """The end of what it wrote."""
        try:
            with open(paths.log_path(), "rb") as file:
                # It had grown too large
                begun_again = os.fstat(file.fileno()).st_size < self.log_start
                file.seek(0 if begun_again else self.log_start)
                text = file.read().decode("utf-8", "replace")
        except OSError as error:
            text = f"(its log cannot be read: {error})"
        return "\n".join(text.splitlines()[-_TAIL_LINES:])


def spawn() -> Started:
    """Start ``python -m warmcc.daemon`` detached from this process. Raises DaemonUnavailable."""
    if not sys.executable:
        raise DaemonUnavailable("cannot start the warmcc daemon: sys.executable is not set")
    try:
        environment = _environment()
        log = paths.log_path()
        descriptor = os.open(
            log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
    except (DaemonError, OSError) as error:
        raise DaemonUnavailable(f"cannot start the warmcc daemon: {error}") from error
    try:
        start = os.lseek(descriptor, 0, os.SEEK_END)
        launched = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _LAUNCHER, sys.executable, "-m", "warmcc.daemon"],
            cwd="/", env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=descriptor, start_new_session=True, check=True,
        )  # fmt: skip
        return Started(int(launched.stdout), start)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        raise DaemonUnavailable(f"cannot start the warmcc daemon: {error}") from error
    finally:
        os.close(descriptor)


def lock_is_held() -> bool:
    """Whether a daemon holds the lock: one that answers, starts or ends.

    The lock itself is not tried, since a daemon that comes at that moment would take it for another
    daemon's.
    """
    try:
        pid = int(paths.lock_path().read_text())
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = file.read()
    except (OSError, ValueError):
        return False
    return b"warmcc.daemon" in command


def _runs(pid: int) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    return False


def _environment() -> dict[str, str]:
    """The environment of a new daemon: its folders, and the caller's variables.
    It lacks what belongs to the caller's process alone (a launcher's rank, a preload, a
    debugger).

    All that requests carry is among them, so that it warms up for the requests that will come.
    Raises DaemonError.
    """
    keep = {
        *KEYED_ENVIRONMENT, *PASSED_ENVIRONMENT, "USER", "LOGNAME", "TMPDIR", "PYTHONPATH",
        "VIRTUAL_ENV",
    }  # fmt: skip
    found = {
        name: value
        for name, value in os.environ.items()
        if name in keep or name.startswith(_PREFIXES)
    }
    return {**without_launcher(found), **paths.settle()}

"""Kill what the daemon started when the daemon is gone, however it went.

A daemon that is killed with SIGKILL cannot clean up, and a process group is no handle on a build (ninja gives each
of its commands a group of its own). Every build therefore runs in a session of its own, and this script, a child of
the daemon, is told their ids: ``+SID`` when one starts and ``-SID`` when it has ended, a line each on standard input.
When that closes, the daemon is dead, and whatever runs in a session that is still listed is killed.

Stand-alone (standard library only): run as ``python -I -S reaper.py``, so that it starts in milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

PATIENCE_SECONDS = 5.0


def session_members(sid: int) -> list[int]:
    """Process ids in a session, zombies left out."""
    members = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            if os.getsid(int(entry)) != sid:
                continue
            with open(f"/proc/{entry}/stat", "rb") as file:
                state = file.read().rpartition(b")")[2].split()[0]
        except OSError:
            continue
        if state not in (b"Z", b"X"):
            members.append(int(entry))
    return members


def kill_session(sid: int) -> bool:
    """SIGKILL every member of a session until none is left; False when some outlast the patience.

    All are stopped first, so that what forks without end does not outrun its killer.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    stopped: set[int] = set()
    while members := set(session_members(sid)):
        if time.monotonic() > deadline:
            return False
        if new := members - stopped:
            _signal(new, signal.SIGSTOP)
            stopped |= new
        else:
            _signal(members, signal.SIGKILL)
            time.sleep(0.005)
    return True


def _signal(pids: set[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sessions: set[int] = set()
    for line in sys.stdin:
        sid = int(line[1:])
        if line.startswith("+"):
            sessions.add(sid)
        else:
            sessions.discard(sid)
    for sid in sessions:
        kill_session(sid)


if __name__ == "__main__":
    main()

"""Kill what the daemon started when the daemon is gone, however it went.

A daemon that is killed with SIGKILL cannot clean up, and a process group does not cover a build
(ninja gives each of its commands a group of its own). Every build therefore runs in a session of
its own, and this script, a child of the daemon, is told their ids: ``+SID`` when one starts and
``-SID`` when it has ended, a line each on standard input. When that closes, the daemon is dead, and
whatever runs in a session that is still listed is killed.

Stand-alone (standard library only): run as ``python -I -S reaper.py``, so that it starts in
milliseconds.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import time

PATIENCE_SECONDS = 5.0
_ROUNDS = 20  # of looking for members that started meanwhile


def session_members(sid: int) -> set[int]:
    """Process ids in a session, zombies left out.
    Raises OSError when /proc cannot be listed (too many open files)."""
    pids = filter(str.isdecimal, os.listdir("/proc"))
    return {int(pid) for pid in pids if _is_of(int(pid), sid) and not _is_dead(pid)}


def _is_of(pid: int, sid: int) -> bool:
    """Whether a process is in a session. It is asked of all after every command of a build."""
    try:
        return os.getsid(pid) == sid
    except (ProcessLookupError, PermissionError):
        return False


def _is_dead(pid: str) -> bool:
    """Whether a process is gone or a zombie.
    What cannot be read counts as alive: nothing is passed over."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.ESRCH)


def kill_session(sid: int) -> set[int]:
    """SIGKILL every member of a session until none is left.
    Returns those that stay: processes that this user may not signal (a setuid program's), and
    what outlasts the patience.

    All are stopped first, so that what forks without end does not outrun its killer.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    stopped: set[int] = set()
    denied: set[int] = set()
    members = {sid}
    while time.monotonic() < deadline:
        try:
            members = session_members(sid)
        except OSError:  # too many open files: they may be closed in a moment
            time.sleep(0.05)
            continue
        if not (members := members - denied):
            break
        if new := members - stopped:
            denied |= _signal(new, signal.SIGSTOP)
            stopped |= new
        else:
            denied |= _signal(members, signal.SIGKILL)
            time.sleep(0.005)
    return {pid for pid in members | denied if not _is_dead(str(pid))}


def signal_session(sid: int, number: int) -> None:
    """Send a signal to every member of a session, and to those that they start meanwhile.
    It ends also where they start others without end. Raises OSError."""
    told: set[int] = set()
    for _ in range(_ROUNDS):
        if not (new := session_members(sid) - told):
            return
        _signal(new, number)
        told |= new


def signal_groups(sid: int, number: int) -> None:
    """Send a signal to the groups of a session's leader and of its children, in microseconds.
    Of a compiler, and of ninja, that is all. Raises OSError when the leader is gone."""
    os.killpg(sid, number)
    for pid in _children(sid):
        with contextlib.suppress(OSError):  # one in another's group, or gone
            os.killpg(pid, number)


def _children(pid: int) -> list[int]:
    """Nothing where the kernel does not tell (CONFIG_PROC_CHILDREN)."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
        return [int(child) for child in file.read().split()]
    return []


def _signal(pids: set[int], number: int) -> set[int]:
    """Send a signal to each process; returns those that this user may not signal."""
    return {pid for pid in pids if not _may_signal(pid, number)}


def _may_signal(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except PermissionError:
        return False
    except ProcessLookupError:
        pass
    return True


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
        if left := kill_session(sid):
            print(
                f"warmcc: processes that a build started could not be ended: {sorted(left)}",
                file=sys.stderr,
            )


if __name__ == "__main__":
    main()

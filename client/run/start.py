"""Have a zygote started for the next time, while this process becomes python.

The zygote inherits what this process has, as the program would. It is nobody's child, and holds
none of the program's files.
"""

from __future__ import annotations

import fcntl
import glob
import json
import os
import time

from warmcc import runs
from warmcc.client.run import facts as circumstances
from warmcc.client.run.facts import Process

AGAIN_SECONDS = 600.0  # after a failure


def start(python: str, profile: str, folder: str, facts: bytes, process: Process) -> str:
    """Start one in the background unless one starts already, or failed shortly before.
    Gives what was done, in words. Raises OSError."""
    digest = circumstances.digest(facts)
    if failure := failed(folder, digest):
        return f"one could not be started: {failure}"
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    lock = os.open(runs.file_of(folder, digest, runs.LOCK), flags, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return "one is starting or ending"
        near = nearest(folder, facts)
        _write(runs.file_of(folder, digest, runs.FACTS), facts)
        told = {
            "folder": folder, "facts": digest, "lock": str(lock), "python": python,
            "profile": profile, "session": str(process.session if process.terminal else 0),
            "prefixes": ",".join(circumstances.PREFIXES), "late": ",".join(circumstances.LATE),
        }  # fmt: skip
        if (pid := os.fork()) == 0:
            try:
                _detach(process, lock, runs.file_of(folder, digest, runs.LOG), json.dumps(told))
                os.execv(python, [python, "-m", "warmcc.daemon.run"])
            finally:
                os._exit(1)
        os.waitpid(pid, 0)
    finally:
        os.close(lock)
    return f"one starts now for the next time{near}"


def failed(folder: str, digest: str) -> str:
    """Why such a zygote failed within the last minutes; '' if none did."""
    path = runs.file_of(folder, digest, runs.FAILED)
    try:
        if time.time() - os.stat(path).st_mtime < AGAIN_SECONDS:
            return os.fsdecode(circumstances.read(path)) or "its reason is not known"
    except OSError:
        pass
    return ""


def nearest(folder: str, facts: bytes) -> str:
    """In which facts the zygote differs that differs least, in words; '' where there is none."""
    found: list[list[str]] = []
    for path in glob.glob(os.path.join(glob.escape(folder), f"*{runs.SOCKET}")):
        other = os.path.basename(path).removesuffix(runs.SOCKET)
        try:
            theirs = circumstances.read(runs.file_of(folder, other, runs.FACTS))
        except OSError:
            continue
        found.append(circumstances.differences(facts, theirs))
    if not found:
        return ""
    return f" (another one differs in: {', '.join(min(found, key=len)[:8])})"


def _detach(process: Process, lock: int, log: str, told: str) -> None:
    """In a fork: leave the launcher, and everything that is the program's. Raises OSError."""
    import signal

    if process.terminal:
        os.setpgid(0, 0)
    else:
        os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    os.umask(0o077)
    theirs = os.memfd_create("warmcc")
    os.write(theirs, told.encode())
    os.lseek(theirs, 0, os.SEEK_SET)
    os.dup2(theirs, 0)
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), 1)
    os.dup2(1, 2)
    runs.close_above(2, lock)
    os.set_inheritable(lock, True)
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


def _write(path: str, data: bytes) -> None:
    descriptor = os.open(
        path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)

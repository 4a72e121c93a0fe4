"""``warmcc run``: hand a Python program to a zygote, or become python.

What a zygote needs to know is told in one message. The program starts only after this process has
said ``go``: until then anything that is wrong or slow makes this process python, and nothing runs
twice.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from warmcc import paths, runs
from warmcc.client.run import facts as circumstances
from warmcc.client.run.facts import Process

READY_SECONDS = 1.5  # python needs longer to import torch
USAGE = (
    "warmcc run [--explain] [--profile {torch,compile}] "
    "[SCRIPT | -m MODULE | -c CODE | -] [ARG ...]"
)


class Plain(Exception):
    """Python itself has to run the program; why. ``stale``: the zygote is of no use any more."""

    def __init__(self, reason: str, *, missing: bool = False, stale: bool = False) -> None:
        super().__init__(reason)
        self.missing, self.stale = missing, stale


def main(words: list[str] | None = None) -> int:
    """The command behind ``warmcc run``; gives an exit code only for wrong usage."""
    words = sys.argv[1:] if words is None else list(words)
    explain, profile = False, "torch"
    while words and words[0].startswith("--"):
        option = words.pop(0)
        if option == "--explain":
            explain = True
        elif option == "--profile" and words and words[0] in runs.PROFILES:
            profile = words.pop(0)
        else:
            print(f"usage: {USAGE}\nwarmcc: wrong option {option}", file=sys.stderr)
            return 2
    python = python_of_this()
    said = None
    try:
        _warm(python, profile, words)
    except Plain as reason:
        said = str(reason)
    except (OSError, ValueError) as error:
        said = f"{type(error).__name__}: {error}"
    if explain:
        print(f"warmcc: python runs it: {said}", file=sys.stderr, flush=True)
    return become_python(python, words)


def python_of_this() -> str:
    """The Python beside this command, under the name that a user types."""
    folder = os.path.dirname(sys.executable)
    plain = os.path.join(folder, "python")
    return plain if os.access(plain, os.X_OK) else sys.executable


def _warm(python: str, profile: str, words: list[str]) -> None:
    """Have a zygote run it, and end as the program does. Raises Plain, OSError, ValueError."""
    if not sys.executable:
        raise Plain("sys.executable is not set")
    if os.environ.get("WARMCC_DISABLE") == "1":
        raise Plain("WARMCC_DISABLE is 1")
    if runs.kind([os.fsencode(word) for word in words]) == "options":
        raise Plain(f"{words[0]} is an option of python")
    if variable := circumstances.why_plain(dict(os.environ)):
        raise Plain(variable)
    from warmcc.errors import DaemonError

    try:
        folder = str(paths.private_dir(paths.runtime_dir() / runs.FOLDER))
    except DaemonError as error:
        raise Plain(str(error)) from None
    process = Process()
    facts = circumstances.gather(python, profile, process)
    digest = circumstances.digest(facts)
    try:
        _hand_over(runs.file_of(folder, digest), python, words, digest, process)
    except Plain as reason:
        if reason.missing or reason.stale:
            from warmcc.client.run import start

            if reason.stale:
                runs.ask(runs.file_of(folder, digest), runs.END)
            started = start.start(python, profile, folder, facts, process)
            raise Plain(f"{reason}; {started}") from None
        raise


def _hand_over(path: str, python: str, words: list[str], digest: str, process: Process) -> None:
    """Give the program to the zygote at a path. Raises Plain, OSError."""
    from _socket import AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket

    from warmcc.client.run import attend

    files = inherited()
    mask = attend.block_all()
    try:
        connection = socket(AF_UNIX, SOCK_STREAM)
        connection.settimeout(READY_SECONDS)
        try:
            connection.connect(path)
        except OSError:
            raise Plain("no zygote is there for it", missing=True) from None
        if attend.user_of(connection) != os.getuid():
            raise Plain("the zygote is another user's")
        terminal = process.terminal != 0
        job = runs.Job(
            digest, os.fsencode(python), [os.fsencode(word) for word in words],
            [b"%s=%s" % pair for pair in os.environb.items()], files, umask(process),
            process.ignored, process.blocked, process.group if terminal else 0,
            int(process.session == os.getpid()),
        ).encode()  # fmt: skip
        folder = os.open(".", os.O_PATH | os.O_DIRECTORY)
        rights = b"".join(one.to_bytes(4, sys.byteorder) for one in (folder, *files))
        witness = attend.Witness()
        connection.sendall(runs.RUN)
        message = len(job).to_bytes(4, "big") + job
        sent = connection.sendmsg([message], [(SOL_SOCKET, SCM_RIGHTS, rights)])
        connection.sendall(message[sent:])
        os.close(folder)
        pid, descriptor = attend.ready(connection)
        connection.sendall(b"g")
    except attend.Refused as reason:
        raise Plain(str(reason), stale=reason.stale) from None
    except TimeoutError:
        raise Plain(f"the zygote did not answer within {READY_SECONDS} s") from None
    finally:
        if sys.exc_info()[0] is not None:
            attend.unblock(mask)
    attend.Attendant(connection, pid, descriptor, witness, terminal=terminal).attend()


def inherited() -> list[int]:
    """The open files that a program gets from this process. Raises Plain for too many."""
    found = []
    for entry in os.listdir("/proc/self/fd"):
        number = int(entry)
        try:
            if os.get_inheritable(number):
                found.append(number)
        except OSError:  # that of the listing
            continue
    if len(found) > runs.DESCRIPTORS:
        raise Plain(f"{len(found)} files are open")
    return sorted(found)


def umask(process: Process) -> int:
    """The mask of modes of new files, without changing it. Raises Plain."""
    for line in process.status.splitlines():
        if line.startswith(b"Umask:"):
            return int(line[6:], 8)
    raise Plain("the kernel does not tell the umask")


def become_python(python: str, words: list[str]) -> NoReturn:
    """Replace this process by python, with the signals as they were. Ends it with 127 where there
    is none."""
    import signal

    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them by itself
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execv(python, [python, *words])
    except OSError as error:
        print(f"warmcc: {python}: {error.strerror}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    sys.exit(main())

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
from warmcc.client.run.hand_over import Plain, go, offer

USAGE = (
    "warmcc run [--explain] [--inductor | --profile {torch,compile,inductor}] "
    "[SCRIPT | -m MODULE | -c CODE | -] [ARG ...]"
)


def main(words: list[str] | None = None) -> int:
    """The command behind ``warmcc run``; gives an exit code only for wrong usage."""
    words = sys.argv[1:] if words is None else list(words)
    explain, profile = False, "torch"
    while words and words[0].startswith("--"):
        option = words.pop(0)
        if option == "--explain":
            explain = True
        elif option == "--inductor":
            profile = "inductor"
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
    from warmcc.client.run import attend

    files = inherited()
    terminal = process.terminal != 0
    job = runs.Job(
        digest, os.fsencode(python), [os.fsencode(word) for word in words],
        [b"%s=%s" % pair for pair in os.environb.items()], files, circumstances.umask(process),
        process.ignored, process.blocked, process.group if terminal else 0,
        int(process.session == os.getpid()),
    )  # fmt: skip
    mask = attend.block_all()
    try:
        folder = os.open(".", os.O_PATH | os.O_DIRECTORY)
        connection, pid, descriptor = offer(path, job, folder, files)
        witness = attend.Witness()
        try:
            go(connection)
        except BaseException:
            witness.end()
            raise
    except BaseException:
        attend.unblock(mask)
        raise
    attend.Attendant(connection, pid, descriptor, witness, terminal=terminal).attend(files)


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

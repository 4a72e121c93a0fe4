"""``warmcc run``: what the launcher and the zygote share, a job and the words on their socket.

A job is text between NUL bytes, which no argument and no variable contains: the zygote's process
becomes the user's, and may import no library for it that the user's program would not have.
Imports as little as can be: a launcher starts for each run.
"""

from __future__ import annotations

import os

FOLDER = "run"  # in the runtime folder; for each zygote some files
SOCKET, LOCK, FAILED, FACTS, LOG = ".sock", ".lock", ".failed", ".facts", ".log"
STARTING = "starting.lock"  # held while a zygote starts: one at a time
ONE_STARTS = "WARMCC_ZYGOTE"  # a variable of a zygote that starts: for whom
PROFILES = ("torch", "compile", "inductor")
# With this profile the zygote imports, last, what has the daemon compile for torch.compile
HOOKS = {"inductor": "warmcc.client.inductor.at_start"}
DESCRIPTORS = 200  # that a job may bring; the kernel passes 253 in a message
JOB_BYTES = 16 << 20
# The first byte on a connection
RUN, STATUS, END = b"r", b"s", b"e"
SEND = b"send\n"  # a fork is there for the job


class Job:
    """One run. ``words`` are python's arguments, ``environment`` has ``NAME=value`` entries.

    ``facts`` is the digest of what must be the same here and there; ``descriptors`` are the numbers
    of the open files, in the order in which they are passed, behind the working directory's.
    ``ignored`` and ``blocked`` are masks of signals; ``group`` is the process group to join, and 0
    where there is no terminal: then the job gets a group (``leader``: a session) of its own.
    """

    __slots__ = (
        "blocked", "descriptors", "environment", "facts", "group", "ignored", "leader", "python",
        "umask", "words",
    )  # fmt: skip

    def __init__(
        self, facts: str, python: bytes, words: list[bytes], environment: list[bytes],
        descriptors: list[int], umask: int, ignored: int, blocked: int, group: int, leader: int,
    ) -> None:  # fmt: skip
        self.facts, self.python, self.words, self.environment = facts, python, words, environment
        self.descriptors, self.umask, self.ignored = descriptors, umask, ignored
        self.blocked, self.group, self.leader = blocked, group, leader

    def encode(self) -> bytes:
        numbers = (
            self.umask, self.ignored, self.blocked, self.group, self.leader, len(self.words),
            *self.descriptors,
        )  # fmt: skip
        head = [self.facts.encode(), b" ".join(b"%d" % number for number in numbers), self.python]
        return b"\0".join([*head, *self.words, *self.environment])


def decode(data: bytes) -> Job:
    """Raises ValueError for what is no job."""
    facts, numbers, python, *rest = data.split(b"\0")
    umask, ignored, blocked, group, leader, count, *descriptors = map(int, numbers.split())
    if not 0 <= count <= len(rest):
        raise ValueError("the number of words")
    return Job(
        facts.decode(), python, rest[:count], rest[count:], descriptors, umask, ignored, blocked,
        group, leader,
    )  # fmt: skip


def kind(words: list[bytes]) -> str:
    """How python reads its arguments: ``command``, ``module``, ``stdin`` or ``file``; or
    ``options`` for what only python itself understands.

    >>> [kind(one) for one in ([b"-c", b"0"], [b"-m"], [b"-"], [], [b"-O", b"x.py"], [b"x.py"])]
    ['command', 'options', 'stdin', 'stdin', 'options', 'file']
    """
    first = words[0] if words else b"-"
    if first in (b"-c", b"-m"):
        if len(words) < 2:
            return "options"
        return "command" if first == b"-c" else "module"
    if first == b"-":
        return "stdin"
    return "options" if first.startswith(b"-") or not first else "file"


def file_of(folder: str, facts: str, ending: str = SOCKET) -> str:
    """A file of the zygote with these facts; the digest is shortened, as a socket's path may not
    be long."""
    return os.path.join(folder, facts[:16] + ending)


def close_above(number: int, kept: int = -1) -> None:
    """Close all open files above a number, but one. Not all numbers up to the limit: without the
    system call for that, they may be a billion."""
    for entry in os.listdir("/proc/self/fd"):
        if int(entry) > number and int(entry) != kept:
            try:
                os.close(int(entry))
            except OSError:  # that of the listing
                continue


def ask(path: str, question: bytes) -> str:
    """A zygote's answer to a question of one byte; '' where none answers in a second."""
    import contextlib
    import socket

    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1.0)
        connection.connect(path)
        connection.sendall(question)
        return connection.recv(4096).decode("utf-8", "replace").strip()
    return ""

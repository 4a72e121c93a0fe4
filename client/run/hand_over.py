"""Hand a job to a zygote: until ``go`` is said, nothing of it runs, and the launcher can still have
python run it.
"""

from __future__ import annotations

import os
import sys
from _socket import (
    AF_UNIX,
    MSG_CMSG_CLOEXEC,
    SCM_RIGHTS,
    SO_PEERCRED,
    SOCK_STREAM,
    SOL_SOCKET,
    socket,
)

from warmcc import runs

READY_SECONDS = 1.5  # python needs longer to import torch


class Plain(Exception):
    """Python itself has to run the program; why. ``missing``: no zygote is there; ``stale``: the
    one that is there is of no use any more."""

    def __init__(self, reason: str, *, missing: bool = False) -> None:
        super().__init__(reason)
        self.missing = missing
        self.stale = reason.startswith("stale: ")


def offer(path: str, job: runs.Job, folder: int, files: list[int]) -> tuple[socket, int, int]:
    """Offer a job, with its working directory and its files, to the zygote at a path. Gives the
    connection, and number and descriptor of the process that waits there. Raises Plain, OSError."""
    connection = socket(AF_UNIX, SOCK_STREAM)
    connection.settimeout(READY_SECONDS)
    try:
        try:
            connection.connect(path)
        except TimeoutError:
            raise
        except OSError:
            raise Plain("no zygote is there for it", missing=True) from None
        if _user_of(connection) != os.getuid():
            raise Plain("the zygote is another user's")
        connection.sendall(runs.RUN)
        # Only then: files in the queue of a zygote that is stopped would stay open.
        if connection.recv(len(runs.SEND)) != runs.SEND:
            raise Plain("the zygote ended")
        data = job.encode()
        message = len(data).to_bytes(4, "big") + data
        rights = b"".join(one.to_bytes(4, sys.byteorder) for one in (folder, *files))
        sent = connection.sendmsg([message], [(SOL_SOCKET, SCM_RIGHTS, rights)])
        connection.sendall(message[sent:])
        return connection, *_ready(connection)
    except TimeoutError:
        connection.close()
        raise Plain(f"the zygote did not answer within {READY_SECONDS} s") from None
    except BaseException:
        connection.close()
        raise


def go(connection: socket) -> None:
    """Have the process begin. Raises Plain where it has ended, OSError."""
    try:
        connection.sendall(b"g")
    except BrokenPipeError:
        raise Plain("the zygote ended") from None


def _ready(connection: socket) -> tuple[int, int]:
    """Wait for the process. Raises Plain, OSError."""
    text, rights, _, _ = connection.recvmsg(4096, 64, MSG_CMSG_CLOEXEC)
    while text and not text.endswith(b"\n"):
        if not (more := connection.recv(4096)):
            break
        text += more
    first = text.partition(b"\n")[0]
    kind, _, rest = first.decode("utf-8", "replace").partition(" ")
    if kind != "ready" or not rights:
        raise Plain(rest if kind == "refused" and rest else "the zygote ended")
    return int(rest), int.from_bytes(rights[0][2][:4], sys.byteorder)


def _user_of(connection: socket) -> int:
    """The user at the other end."""
    return int.from_bytes(connection.getsockopt(SOL_SOCKET, SO_PEERCRED, 12)[4:8], sys.byteorder)

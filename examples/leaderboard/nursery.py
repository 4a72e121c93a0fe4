"""Fresh processes with torch imported: one process imports it, and forks for each submission.

Importing torch takes seconds, and a fork takes milliseconds. Nothing of a submission runs in this
process, and nothing secret is in it that a fork could read: no test, no key, no other submission.
The evaluator sends a job with four descriptors, as ``run.py`` has them.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

import torch

import warmcc

from . import worker
from .confine import Job, Limits, supervise

_ = warmcc.load_inline, torch.ones(1)  # imported and initialised here, and not in each fork


def main(descriptor: int) -> None:
    """Fork until the evaluator has closed the socket."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel takes what has ended
    with socket.socket(fileno=descriptor) as evaluator:
        evaluator.sendall(b"ready\n")
        while True:
            message, descriptors, _, _ = socket.recv_fds(evaluator, 1 << 16, 4)
            if not message:
                return
            if os.fork() == 0:
                evaluator.close()
                try:
                    _become(message, descriptors)
                finally:
                    os._exit(1)
            for one in descriptors:
                os.close(one)


def _become(message: bytes, descriptors: list[int]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    given = json.loads(message)
    job = Job(**{**given, "limits": Limits(**given["limits"])})
    requests, answers, output, control = descriptors

    def work() -> None:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.dup2(requests, 3)
        os.dup2(answers, 4)
        os.closerange(5, 1024)
        worker.serve(3, 4)
        os._exit(0)

    supervise(job, socket.socket(fileno=control), [requests, answers, output], work)


if __name__ == "__main__":
    main(int(sys.argv[1]))

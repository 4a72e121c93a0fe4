"""On the machine that runs submissions: unpack a bundle, run it confined, check it from outside.

The process of a submission gets inputs and returns results. Whether these are right is decided
here, where the submission cannot be: a faked message, ``exit(0)`` or another answer of
``torch.allclose`` in its process gain nothing. Inputs are new for each call, and the results of
timed calls are checked as well.

What one process cannot prevent: the submission measures ``Report.seconds`` itself, as it can change
clocks, ``torch.cuda.Event`` and Python in its process. ``Report.seconds_outside`` is the time from
sending inputs to having all results, for one call: it includes copies, and it cannot be forged to
be less than the work took.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import warmcc

from . import task
from .confine import UID, Job, Limits
from .frames import Ended, Nonsense, Pipe, TooLate
from .interface import arguments
from .submission import Report, Submission

OUTPUT = 4096  # characters of a submission's output that its user gets
_PACKAGE = Path(__file__).parent
# Of the process that forks: nothing of the evaluator's, as a submission can read it
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin", "HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1", "WARMCC_OFFLINE": "1",
    "WARMCC_BUNDLES": "/bundle", "WARMCC_CACHE_DIR": "/tmp/cache", "WARMCC_CONFIG": "/tmp/none",
}  # fmt: skip
if "PYTHONPATH" in os.environ:  # where warmcc may be
    _ENVIRONMENT["PYTHONPATH"] = os.environ["PYTHONPATH"]


class Broken(Exception):
    """The machine does not do what is needed; the submission is not to blame."""


class Lost(Broken):
    """The process that forks ended, and the submission did not begin."""


class Runner:
    """Runs submissions, as many at a time as threads call ``run``. A context manager.

    ``work`` is a folder for bundles, which is empty between runs; ``uid`` is the first of the user
    numbers that submissions get if this is root, one for each that runs at a time."""

    def __init__(
        self, work: Path, limits: Limits | None = None, *, gpu: bool | None = None,
        uid: int = UID,
    ) -> None:  # fmt: skip
        self._work = work.resolve()
        self._limits = limits or Limits()
        self._gpu = torch.cuda.is_available() if gpu is None else gpu
        self._free = list(range(uid, uid + 1000))
        self._lock = threading.Lock()
        self._nursery: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._work.mkdir(parents=True, exist_ok=True, mode=0o755)

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._end_nursery()

    def run(self, source: Submission, bundle: Path) -> Report:
        """Run one submission from its bundle; once more if the process that forks was killed."""
        for _ in range(2):
            if (report := self._run(source, bundle)) is not None:
                return report
        log = "the process that forks for submissions was killed twice"
        return Report(source.user, source.name, "failed", log=log)

    def _run(self, source: Submission, bundle: Path) -> Report | None:
        """None if it did not begin. Its folder is removed afterwards."""
        report = Report(source.user, source.name, "failed")
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=self._work))
        with self._lock:
            uid = self._free.pop()
        try:
            cuda = source.language == "cuda"
            if cuda and not self._gpu:
                raise Broken("this machine has no GPU")
            unpacked = warmcc.unpack(bundle, folder / "bundle")
            if unpacked.artifacts != [source.extension]:
                raise Broken(f"{bundle} is not the bundle of {source.user}/{source.name}")
            _open_to_readers(folder)
            (folder / "root").mkdir()
            job = Job(str(folder / "bundle"), str(folder / "root"), uid, cuda, self._limits)
            with self._started(job) as (pipe, child):
                _evaluate(source, report, pipe, child)
        except Lost:
            return None
        except (warmcc.WarmccError, Broken, OSError) as error:
            report.status, report.log = "failed", str(error)
        finally:
            with self._lock:
                self._free.append(uid)
            shutil.rmtree(folder, ignore_errors=True)
        return report

    @contextlib.contextmanager
    def _started(self, job: Job) -> Iterator[tuple[Pipe, _Child]]:
        """A confined process: at the end of the block, it and all that it started are gone."""
        ours, theirs = [], []
        control, far = socket.socketpair()
        with contextlib.ExitStack() as stack:
            stack.enter_context(control)
            with far:
                for mine in (1, 0, 0):  # requests, answers, output
                    ends = os.pipe()
                    ours.append(ends[mine])
                    theirs.append(ends[1 - mine])
                    stack.callback(os.close, ends[mine])
                try:
                    message = json.dumps(dataclasses.asdict(job)).encode()
                    self._send(message, [*theirs, far.fileno()])
                finally:
                    for end in theirs:
                        os.close(end)
            child = _Child(control, ours[2], job.limits.output)
            stack.callback(child.end)
            yield Pipe(ours[1], ours[0], time.monotonic() + job.limits.seconds), child

    def _send(self, message: bytes, descriptors: list[int]) -> None:
        """To the nursery, which is started if it is not there. Raises Broken."""
        with self._lock:
            if self._nursery is None or self._nursery.poll() is not None:
                self._end_nursery()
                self._start_nursery()
            assert self._socket is not None
            try:
                socket.send_fds(self._socket, [message], descriptors)
            except OSError as error:
                self._end_nursery()
                raise Lost(str(error)) from None

    def _start_nursery(self) -> None:
        """Raises Broken."""
        self._socket, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with far:
            self._nursery = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.nursery", str(far.fileno())],
                cwd=_PACKAGE.parent, env=_ENVIRONMENT, stdin=subprocess.DEVNULL,
                pass_fds=[far.fileno()],
            )  # fmt: skip
        self._socket.settimeout(300)  # torch is imported, perhaps from a slow disk
        with contextlib.suppress(OSError):
            if self._socket.recv(16):
                return
        self._end_nursery()
        raise Broken("the process that forks for submissions does not start; its error is above")

    def _end_nursery(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._nursery is not None:
            self._nursery.kill()
            self._nursery.wait()
        self._socket = self._nursery = None


class _Child:
    """The evaluator's end of a confined process: what it prints, and how it ended."""

    def __init__(self, control: socket.socket, output: int, limit: int) -> None:
        self._control, self._output, self._limit = control, output, limit
        self._kept = b""
        self._flooded = False
        self._end: dict[str, Any] | None = None
        self._thread = threading.Thread(target=self._drain)
        self._thread.start()

    def _drain(self) -> None:
        total = 0
        while part := os.read(self._output, 1 << 16):
            total += len(part)
            self._kept = (self._kept + part)[:OUTPUT]
            if total > self._limit and not self._flooded:
                self._flooded = True
                self._kill()

    def _kill(self) -> None:
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)

    def end(self, patience: float = 0.0) -> dict[str, Any]:
        """End it, after some seconds if it does not end by itself.
        Returns ``status``, the ``reason`` and ``error`` if it could not begin."""
        if self._end is None:
            if not select.select([self._control], [], [], patience)[0]:
                self._kill()
            self._control.settimeout(30)
            said = b""
            with contextlib.suppress(OSError):
                while part := self._control.recv(4096):
                    said += part
            self._thread.join()
            self._end = {"reason": "lost", "status": -1}
            for line in said.splitlines():
                self._end |= json.loads(line)
            if self._flooded:
                self._end["reason"] = "output limit"
        return self._end

    @property
    def output(self) -> str:
        return self._kept.decode(errors="replace")


def _evaluate(source: Submission, report: Report, pipe: Pipe, child: _Child) -> None:
    """Fill in the report. Raises Broken."""
    try:
        _converse(source, report, pipe)
    except Ended:
        report.status = "crashed"
    except TooLate:
        report.status = "time limit"
    except Nonsense as error:
        report.status, report.log = "crashed", f"the process sent {error}"
    end = child.end(1.0 if report.status == "crashed" else 0.0)
    report.output = child.output
    if "error" in end:
        raise Broken(end["error"])
    if end["reason"] == "lost":
        raise Lost("no word of the submission's process")
    if end["reason"].endswith(" limit"):
        report.status = end["reason"]
    elif end["reason"] not in ("ended", "told"):
        raise Broken(f"the process could not be watched: {end['reason']}")
    elif report.status == "crashed" and not report.log:
        code = end["status"]
        how = f"signal {code - 128}" if code > 128 else f"exit code {code}"
        report.log = f"the process ended with {how}"


def _converse(source: Submission, report: Report, pipe: Pipe) -> None:
    """Raises Ended, TooLate, Nonsense."""
    pipe.send({"arguments": arguments(source), "cuda": source.language == "cuda"})
    begun, _ = pipe.receive(0)
    if "error" in begun:
        report.status, report.log = "crashed", str(begun["error"])[:OUTPUT]
        return
    for name, shape in task.TESTS.items():
        detail, _, _ = _call(pipe, [task.inputs(shape)])
        report.tests.append({"name": name, "passed": not detail, "detail": detail})
    if not all(one["passed"] for one in report.tests):
        report.status = "wrong"
        return
    measured, outside = [], []
    for _ in range(task.ROUNDS):
        detail, seconds, wall = _call(pipe, [task.inputs(task.TIMED) for _ in range(task.CALLS)])
        if detail:
            report.tests.append({"name": "timed", "passed": False, "detail": detail})
            report.status = "wrong"
            return
        measured.append(seconds / task.CALLS)
        outside.append(wall / task.CALLS)
    report.seconds, report.seconds_outside = statistics.median(measured), statistics.median(outside)
    report.status = "passed"


def _call(pipe: Pipe, calls: list[list[torch.Tensor]]) -> tuple[str, float, float]:
    """What is wrong with the results of some calls, the seconds that the process says they took,
    and the seconds that they took from here. Raises Ended, TooLate, Nonsense."""
    expected = [task.reference(*given) for given in calls]
    began = time.monotonic()
    pipe.send({"each": len(calls[0])}, [one for given in calls for one in given])
    said, found = pipe.receive(sum(one.nbytes for one in expected))
    wall = time.monotonic() - began
    if "error" in said:
        return str(said["error"])[:OUTPUT], 0.0, wall
    if len(found) != len(expected):
        raise Nonsense(f"{len(found)} results of {len(expected)}")
    seconds = said.get("seconds")
    if not isinstance(seconds, float) or not 0 <= seconds < 1e6:
        raise Nonsense("a time that is none")
    for one, right in zip(found, expected, strict=True):
        if one.dtype != right.dtype or one.shape != right.shape:
            detail = f"{one.dtype} {list(one.shape)} instead of {right.dtype} {list(right.shape)}"
            return detail, seconds, wall
        if detail := task.difference(one, right):
            return detail, seconds, wall
    return "", seconds, wall


def _open_to_readers(folder: Path) -> None:
    """Let the submission's user read the bundle, and not write to it."""
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o444)

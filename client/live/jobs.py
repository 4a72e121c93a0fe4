"""Run something on each new version: a command, a function of the user's, or tests.
The newest version wins: what still runs on an older one is ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from warmcc.errors import RequestError
from warmcc.protocol import Built

_GRACE_SECONDS = 2.0
_TARGET = re.compile(r"[\w.]+:[\w.]+")


@dataclass(frozen=True)
class Ran:
    """``command`` has ended with ``code`` after ``seconds``."""

    command: str
    code: int
    seconds: float


class Job(Protocol):
    """What can be run: ``name`` is how a person would write it."""

    @property
    def name(self) -> str: ...

    def spawn(self, built: Built) -> subprocess.Popen[str]:
        """Start it in a session of its own, with its output in a pipe. Raises OSError."""

    def close(self) -> None: ...


class JobRunner:
    """Runs jobs in a thread, which calls ``output`` with each line and ``ran`` at the end."""

    def __init__(self, job: Job, output: Callable[[str], None], ran: Callable[[Ran], None]) -> None:
        self.job = job
        self._output = output
        self._ran = ran
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None

    def start(self, built: Built) -> None:
        """Run on a new version; ends what runs on the one before."""
        self.stop()
        began = time.monotonic()
        try:
            self._process = self.job.spawn(built)
        except OSError as error:
            self._output(str(error))
            self._ran(Ran(self.job.name, 127, 0.0))
            return
        self._thread = threading.Thread(
            target=self._follow, args=(self._process, began), daemon=True
        )
        self._thread.start()

    def _follow(self, process: subprocess.Popen[str], began: float) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self._output(line.rstrip("\n"))
        code = process.wait()
        if self._process is process:  # nobody has ended it
            self._ran(Ran(self.job.name, code, time.monotonic() - began))

    def stop(self) -> None:
        """End what runs, with all that it has started."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_GRACE_SECONDS)
                    break
        if self._thread is not None:
            self._thread.join(_GRACE_SECONDS)

    def close(self) -> None:
        self.stop()
        self.job.close()


def _spawn(words: Sequence[str], *, reads: bool, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        words, env={**os.environ, **variables, "PYTHONUNBUFFERED": "1"}, text=True,
        errors="replace", stdin=subprocess.PIPE if reads else subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


class Command:
    """A command, without a shell. The path of the new version is in ``WARMCC_BUILT``."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)

    @classmethod
    def of(cls, text: str) -> Command:
        """Raises RequestError."""
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise RequestError(f"--run {text!r}: {error}") from None
        if not words:
            raise RequestError("--run requires a command")
        return cls(words)

    @property
    def name(self) -> str:
        return shlex.join(self._words)

    def spawn(self, built: Built) -> subprocess.Popen[str]:
        return _spawn(self._words, reads=False, WARMCC_BUILT=built.path)

    def close(self) -> None:
        pass


class Call:
    """A function of a module of the user's.
    It gets the extension if it takes an argument, and is called in a process that has imported
    torch already, ahead of need."""

    def __init__(self, target: str, extension: str, *, is_module: bool) -> None:
        """Raises RequestError."""
        if not _TARGET.fullmatch(target):
            raise RequestError(f"--call {target!r}: write module:function")
        self.name = target
        self._job = {"target": target, "name": extension, "is_module": is_module}
        self._spare = self._prepare()

    @staticmethod
    def _prepare() -> subprocess.Popen[str]:
        return _spawn([sys.executable, "-m", "warmcc.client.live.call_worker"], reads=True)

    def spawn(self, built: Built) -> subprocess.Popen[str]:
        process, self._spare = self._spare, self._prepare()
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(json.dumps({**self._job, "path": built.path}))
        return process

    def close(self) -> None:
        self._spare.kill()
        self._spare.communicate()

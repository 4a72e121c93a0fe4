"""One job of a ``Runner``: started in a zygote's fork or as a python, watched until it ends."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
import uuid
from _socket import socket
from dataclasses import dataclass

from warmcc import paths, runs
from warmcc.client.run import descendants, start
from warmcc.client.run import facts as circumstances
from warmcc.client.run.facts import Process
from warmcc.client.run.hand_over import Plain, go, offer
from warmcc.errors import WarmccError

_LOOK_SECONDS = 0.05
_TOLD_SECONDS = 10.0  # from its end until the zygote has told it
_START_SECONDS = 20.0  # until a launcher has told that a zygote is wanted


@dataclass(frozen=True)
class Finished:
    """How a job ended. ``code`` is the exit code, negative for a signal; ``stdout`` and ``stderr``
    are what it wrote, up to the limit (``cut``: there was more). ``timed_out`` and
    ``out_of_memory`` say that a limit ended it, ``cancelled`` that the runner did. ``seconds`` is
    the time from its start, and ``why_plain`` says why python itself ran it; '' for a zygote."""

    code: int
    stdout: bytes
    stderr: bytes
    seconds: float
    timed_out: bool = False
    out_of_memory: bool = False
    cancelled: bool = False
    cut: bool = False
    why_plain: str = ""


@dataclass(frozen=True)
class Wanted:
    """What is to be run: python's arguments, and the limits (seconds, bytes; None: no limit)."""

    python: str
    words: list[str]
    stdin: bytes
    environment: dict[str, str]
    folder: str
    timeout: float | None
    memory: int | None
    output: int
    profile: str


class _Output:
    """One stream of a job, of which a part is kept."""

    def __init__(self, limit: int) -> None:
        self.read, self.write = os.pipe()
        os.set_blocking(self.read, False)
        self._limit, self._size = limit, 0
        self._blocks: list[bytes] = []

    def take(self) -> bool:
        """Take what is there; whether more can come."""
        with contextlib.suppress(BlockingIOError):
            while block := os.read(self.read, 1 << 16):
                kept = block[: max(0, self._limit - self._size)]
                self._blocks += [kept] if kept else []
                self._size += len(block)
            return False
        return True

    @property
    def data(self) -> bytes:
        return b"".join(self._blocks)

    @property
    def cut(self) -> bool:
        return self._size > self._limit


class Job:
    """A job that runs. ``stop`` may be called from any thread."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._mark = uuid.uuid4().hex
        self._environment = {**wanted.environment, descendants.MARK: self._mark}
        self._connection: socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._text = b""
        self._pid = 0
        self._stopped = False

    def stop(self) -> None:
        """End it at its next look, with all that it started."""
        self._stopped = True

    def run(self) -> Finished:
        """From its start to its end. Raises OSError when it cannot be started."""
        streams = _Output(self._wanted.output), _Output(self._wanted.output)
        stdin = os.memfd_create("stdin")
        files = [stdin, *(one.write for one in streams)]
        watched = -1
        began = time.monotonic()
        try:
            with open(stdin, "wb", closefd=False) as file:
                file.write(self._wanted.stdin)
            os.lseek(stdin, 0, os.SEEK_SET)
            why = self._begin(files)
            for number in files:
                os.close(number)
            files = []
            if self._process is not None:
                watched = os.pidfd_open(self._pid)
            reasons = self._watch(streams, watched, began)
            code = self._code()
            self._kill_all()
            self._pid = 0
            for one in streams:
                one.take()
            return Finished(
                code, streams[0].data, streams[1].data, time.monotonic() - began, **reasons,
                cut=any(one.cut for one in streams), why_plain=why,
            )  # fmt: skip
        finally:
            self._leave([*files, *(one.read for one in streams), watched])

    def _leave(self, numbers: list[int]) -> None:
        """Whatever happened: no process and no open file."""
        if self._pid:
            with contextlib.suppress(OSError):
                self._kill_all()
        if self._process is not None:
            self._process.wait()
        if self._connection is not None:
            self._connection.close()
        for number in numbers:
            if number >= 0:
                os.close(number)

    def _begin(self, files: list[int]) -> str:
        """Start it; gives why no zygote could. Raises OSError."""
        try:
            self._ask_zygote(files)
            return ""
        except (Plain, WarmccError, OSError, ValueError) as reason:
            wanted = self._wanted
            self._process = subprocess.Popen(
                [wanted.python, *wanted.words], stdin=files[0], stdout=files[1], stderr=files[2],
                env=self._environment, cwd=wanted.folder, start_new_session=True,
            )  # fmt: skip
            self._pid = self._process.pid
            return str(reason)

    def _ask_zygote(self, files: list[int]) -> None:
        """Raises Plain, OSError, ValueError."""
        wanted = self._wanted
        if runs.kind([os.fsencode(word) for word in wanted.words]) == "options":
            raise Plain(f"{wanted.words[0]} is an option of python")
        if variable := circumstances.why_plain(wanted.environment):
            raise Plain(variable)
        process = Process()
        process.terminal = 0  # a job has none
        folder = str(paths.private_dir(paths.runtime_dir() / runs.FOLDER))
        facts = circumstances.gather(wanted.python, wanted.profile, process, wanted.environment)
        digest = circumstances.digest(facts)
        path = runs.file_of(folder, digest)
        entries = [os.fsencode(f"{name}={value}") for name, value in self._environment.items()]
        job = runs.Job(
            digest, os.fsencode(wanted.python), [os.fsencode(word) for word in wanted.words],
            entries, [0, 1, 2], circumstances.umask(process), 0, 0, 0, 1,
        )  # fmt: skip
        where = os.open(wanted.folder, os.O_PATH | os.O_DIRECTORY)
        try:
            self._connection, self._pid, descriptor = offer(path, job, where, files)
            os.close(descriptor)
            go(self._connection)
            self._connection.setblocking(False)
        except Plain as reason:
            self._connection, self._pid = None, 0
            if reason.stale:
                runs.ask(path, runs.END)
            if (reason.missing or reason.stale) and not start.failed(folder, digest):
                self._have_one_started()
            raise
        finally:
            os.close(where)

    def _have_one_started(self) -> None:
        """By a launcher of no program: this process may have threads, and is not forked."""
        command = [sys.executable, "-m", "warmcc.client.run.launch"]
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                [*command, "--profile", self._wanted.profile, "-c", ""], cwd="/",
                env=self._wanted.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, start_new_session=True, timeout=_START_SECONDS,
            )  # fmt: skip

    def _watch(
        self, streams: tuple[_Output, _Output], watched: int, began: float
    ) -> dict[str, bool]:
        """Until it ends; gives which limit ended it."""
        wanted = self._wanted
        reasons: dict[str, bool] = {}
        with selectors.DefaultSelector() as selector:
            for one in streams:
                selector.register(one.read, selectors.EVENT_READ, one)
            end = watched if self._connection is None else self._connection.fileno()
            selector.register(end, selectors.EVENT_READ)
            look = began
            while True:
                for key, _ in selector.select(max(0.0, look - time.monotonic())):
                    if isinstance(key.data, _Output):
                        if not key.data.take():
                            selector.unregister(key.fd)
                    elif self._has_ended():
                        return reasons
                if (now := time.monotonic()) < look:
                    continue
                if reasons:  # it was killed, and the zygote does not tell: it is stopped, perhaps
                    return reasons
                look = now + _LOOK_SECONDS
                if wanted.timeout is not None:
                    look = min(look, max(now, began + wanted.timeout))
                if reasons := self._limit(began):
                    self._kill_all()
                    look = time.monotonic() + _TOLD_SECONDS

    def _kill_all(self) -> None:
        """Raises OSError when processes cannot be listed."""
        descendants.kill(self._pid, self._mark)

    def _limit(self, began: float) -> dict[str, bool]:
        wanted = self._wanted
        if self._stopped:
            return {"cancelled": True}
        if wanted.timeout is not None and time.monotonic() - began >= wanted.timeout:
            return {"timed_out": True}
        if wanted.memory is not None:
            held = descendants.memory(descendants.of(self._pid, self._mark))
            if held > wanted.memory:
                return {"out_of_memory": True}
        return {}

    def _has_ended(self) -> bool:
        if self._connection is None:
            return True
        with contextlib.suppress(BlockingIOError):
            block = self._connection.recv(4096)
            self._text += block
            return not block or b"exited" in self._text or b"killed" in self._text
        return False

    def _code(self) -> int:
        if self._process is not None:
            return self._process.wait()
        word, _, number = self._text.strip().rpartition(b"\n")[2].partition(b" ")
        if word == b"exited":
            return int(number)
        # A zygote that was killed tells nothing
        return -int(number) if word == b"killed" else -signal.SIGKILL

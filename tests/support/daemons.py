"""A real daemon for tests: started in the foreground in folders of its own, watched, ended, and
looked after.

It is spoken to in the protocol's own words (``Hello``, ``Status`` …) rather than through
``warmcc.client``, so that a broken client cannot hide a broken daemon.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import psutil
import zmq

from warmcc import __version__, protocol, runs

if TYPE_CHECKING:
    from typing_extensions import Self

START_SECONDS = 30.0
STOP_SECONDS = 15.0


running: list[Daemon] = []  # the daemons of this process's tests, for what is shown of a failure


class Daemon:
    """One daemon. ``environment`` holds the variables that make a client talk to this daemon and to
    no other.

    ``settings`` are those of warmcc.config; nothing is pre-warmed unless asked
    (``prewarm=None``: as the defaults have it). The client's side of ``environment``
    starts no daemon and takes no stock path in silence: a test that wants either says so.
    """

    switched_off: ClassVar[str] = ""  # an accelerator that no daemon of this run may use

    def __init__(self, folder: str | None = None, **settings: Any) -> None:
        # Short: it holds the socket.
        self.folder = Path(folder or tempfile.mkdtemp(prefix="wcc-", dir="/tmp"))
        self.runtime_dir = self.folder / "run"
        self.cache_dir = self.folder / "cache"
        self.state_dir = self.folder / "state"
        self.socket = self.runtime_dir / "daemon.sock"
        self.log_file = self.folder / "daemon.out"
        self.environment = {
            "WARMCC_RUNTIME_DIR": str(self.runtime_dir),
            "WARMCC_CACHE_DIR": str(self.cache_dir),
            "WARMCC_STATE_DIR": str(self.state_dir),
            "WARMCC_CONFIG": str(self.folder / "config.toml"),
            "WARMCC_AUTOSTART": "0",
            "WARMCC_FALLBACK": "0",
        }
        self.settings = {"prewarm": [], "prewarm_idle": [], "prewarm_cuda": False, **settings}
        if self.switched_off:
            self.settings[self.switched_off] = False
        self.prefix: list[str] = []  # what starts the daemon's command, instead of this process
        self.process: subprocess.Popen[bytes] | Adopted | None = None

    @classmethod
    def adopted(cls, folder: str, pid: int) -> Self:
        """The daemon that another process of the run has started."""
        one = cls(folder)
        one.process = Adopted(pid)
        return one

    @property
    def pid(self) -> int:
        assert self.process is not None, "the daemon was not started"
        return self.process.pid

    def start(self, command: list[str] | None = None) -> Self:
        """Start it (again) and wait until it greets. Raises AssertionError with its log when it
        does not. ``command`` becomes the daemon, in place of the usual one."""
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith("WARMCC_")
        }
        environment |= self.environment
        environment |= {
            f"WARMCC_{key.upper()}": _written(value)
            for key, value in self.settings.items()
            if value is not None
        }
        with open(self.log_file, "ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, *(command or [sys.executable, "-m", "warmcc.daemon"])],
                cwd="/",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self.ask(None, START_SECONDS)
        except BaseException:
            self.kill()
            raise
        return self

    def log(self) -> str:
        """All that the daemon wrote, on its standard output and in its log file."""
        texts = [self.log_file, self.state_dir / "daemon.log"]
        return "".join(path.read_text(errors="replace") for path in texts if path.exists())

    def ask(self, message: Any, seconds: float = 10.0) -> Any:
        """Greet, then send one message that has an ``id`` (or none) and give back its answer."""
        deadline = time.monotonic() + seconds
        with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.linger = 0
            socket.connect(f"ipc://{self.socket}")
            hello = protocol.Hello(
                protocols=[protocol.PROTOCOL], version=__version__, pid=os.getpid()
            )
            answer = self._exchange(socket, hello, deadline)
            assert isinstance(answer, protocol.Welcome), f"greeted with {answer}"
            return answer if message is None else self._exchange(socket, message, deadline)

    def _exchange(self, socket: zmq.Socket[bytes], message: Any, deadline: float) -> Any:
        socket.send_multipart([protocol.MAGIC, protocol.encode(message)])
        answer: Any = None
        while answer is None or isinstance(answer, protocol.Progress):
            while not socket.poll(50):
                assert self.running(), f"the daemon ended:\n{self.log()}"
                assert time.monotonic() < deadline, (
                    f"the daemon does not answer {message}:\n{self.log()}"
                )
            magic, body = socket.recv_multipart()
            assert magic == protocol.MAGIC, magic
            answer = protocol.decode_daemon_message(body)
        return answer

    def status(self) -> dict[str, Any]:
        answer = self.ask(protocol.Status(id=1))
        assert isinstance(answer, protocol.Report), answer
        return answer.data

    def wait_for_profiles(self, at_least: int = 0, seconds: float = 1140.0) -> None:
        """Wait until it has warmed up, this many profiles are known, and the PCH of each is ready,
        or given up.
        """
        deadline = time.monotonic() + seconds
        while True:
            status = self.status()
            states = [profile["state"] for profile in status["profiles"]]
            settled = not status["prewarming"] and not {"building", "unverified"} & set(states)
            if len(states) >= at_least and settled:
                return
            assert time.monotonic() < deadline, (
                f"no precompiled header after {seconds:.0f} s: {states}\n{self.log()}"
            )
            time.sleep(0.2)

    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def processes(self) -> list[psutil.Process]:
        """Every process that belongs to this daemon by descent, environment, working directory or
        arguments.
        """
        found: dict[int, psutil.Process] = {}
        if self.running():
            with contextlib.suppress(psutil.NoSuchProcess):
                own = psutil.Process(self.pid)
                found = {process.pid: process for process in [own, *own.children(recursive=True)]}
        mark = f"{self.folder}/"
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.status() == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
                    continue
                traces = [*process.cmdline(), f"{process.cwd()}/", *process.environ().values()]
                if any(mark in trace for trace in traces):
                    found[process.pid] = process
        return list(found.values())

    def kill(self) -> None:
        """End it the hard way (SIGKILL), as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """End it the polite way (SIGTERM). Raises AssertionError when it stays, or leaves processes
        behind. The zygotes that ``warmcc run`` started in its folders are nobody's children; they
        end, too.
        """
        for socket in (self.runtime_dir / runs.FOLDER).glob(f"*{runs.SOCKET}"):
            runs.ask(str(socket), runs.END)
        family = self.processes()
        if self.running():
            assert self.process is not None
            self.process.terminate()
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(
                    f"the daemon ignored SIGTERM for {seconds} s:\n{self.log()}"
                ) from None
        left = self.left_over(family)
        assert not left, f"processes left behind: {left}\n{self.log()}"

    def left_over(
        self, family: list[psutil.Process] | None = None, seconds: float = 5.0
    ) -> list[str]:
        """Command lines of processes that outlive the daemon by more than ``seconds``."""
        deadline = time.monotonic() + seconds
        while True:
            alive = {
                process.pid: process
                for process in [*(family or []), *self.processes()]
                if _alive(process)
            }
            if not alive or time.monotonic() > deadline:
                return [_describe(process) for process in alive.values()]
            time.sleep(0.1)

    def discard(self) -> None:
        """Whatever happened: leave no process and no file."""
        family = self.processes()
        self.kill()
        for process in [*family, *self.processes()]:
            with contextlib.suppress(psutil.Error):
                process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Adopted:
    """A process that another one has started, as subprocess.Popen shows one's own."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._process: psutil.Process | None = None
        with contextlib.suppress(psutil.NoSuchProcess):
            self._process = psutil.Process(pid)

    def poll(self) -> int | None:
        return None if self._process is not None and _alive(self._process) else 0

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("daemon", timeout or 0.0)
            time.sleep(0.02)
        return 0

    def terminate(self) -> None:
        if self._process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._process.terminate()

    def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._process.kill()


def _alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _describe(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return f"{process.pid} {' '.join(process.cmdline())}"
    return str(process.pid)


def _written(value: Any) -> str:
    """A setting as a variable holds it."""
    if isinstance(value, bool):
        return str(int(value))
    return ";".join(value) if isinstance(value, list) else str(value)

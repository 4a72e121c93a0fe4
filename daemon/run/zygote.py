"""The zygote: import what the profile says, then fork a process for each job.

It runs inside Python's startup (``at_start/sitecustomize.py``). ``serve`` returns in the forked
processes alone, which go on with that startup as the job's Python. The zygote itself waits for
them, tells their launchers how they stop and end, and kills those whose launcher has gone.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import time
from typing import NoReturn

from warmcc import runs
from warmcc.daemon.run import child
from warmcc.daemon.run.main_config import MainConfig

_LOOK_SECONDS = 30.0  # between looks at the socket's file and the idle time
_FLAGS = os.WNOHANG | os.WUNTRACED | os.WCONTINUED
_CONNECTIONS = 512


class Zygote:
    """``lock`` is the descriptor of the file that says that one serves these facts; ``session`` a
    terminal's session to end with, or 0."""

    def __init__(
        self, path: str, lock: int, checks: child.Checks, config: MainConfig, idle: float,
        session: int, streams: list[tuple[str, str]], profile: str,
    ) -> None:  # fmt: skip
        self._path, self._lock, self._checks, self._config = path, lock, checks, config
        self._idle, self._streams, self._profile = idle, streams, profile
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # of one that was killed: the lock is ours
        before = os.umask(0o177)
        try:
            self._listener.bind(path)
        finally:
            os.umask(before)
        self._listener.listen(_CONNECTIONS)
        self._listener.setblocking(False)
        self._inode = os.stat(path).st_ino
        self._wake, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._session = os.pidfd_open(session) if session else -1
        self._asking: dict[int, tuple[socket.socket, float]] = {}  # by descriptor
        self._running: dict[int, socket.socket] = {}  # by process
        self._pids: dict[int, int] = {}  # by descriptor
        self._used = time.monotonic()
        self._jobs = 0
        self._ending = False
        self._poll = select.poll()

    def serve(self) -> None:
        """Until a fork returns from it as its job. The zygote's process ends in here."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        for descriptor in (self._listener.fileno(), self._wake, self._session):
            if descriptor >= 0:
                self._poll.register(descriptor, select.POLLIN)
        while True:
            events = {descriptor for descriptor, _ in self._poll.poll(1000 * _LOOK_SECONDS)}
            for descriptor in events - {self._listener.fileno()}:
                if descriptor == self._wake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake, 4096)
                    self._tell()
                elif descriptor == self._session:
                    self._poll.unregister(descriptor)
                    self._end()
                elif descriptor in self._pids:
                    self._launcher_went(descriptor)
                elif descriptor in self._asking and self._answer(descriptor):
                    return
            if self._listener.fileno() in events:  # last: it may get a number that was just closed
                self._accept()
            self._look()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        _, uid, _ = _peer(connection)
        if uid != os.getuid() or len(self._asking) >= _CONNECTIONS:
            connection.close()
            return
        connection.setblocking(False)
        self._asking[connection.fileno()] = connection, time.monotonic()
        self._poll.register(connection.fileno(), select.POLLIN)

    def _answer(self, descriptor: int) -> bool:
        """Do what a client asks; whether this is the process of a job now."""
        connection, _ = self._asking.pop(descriptor)
        self._poll.unregister(descriptor)
        with contextlib.suppress(OSError):
            asked = connection.recv(1)
            if asked == runs.RUN and not self._ending:
                return self._fork(connection)
            if asked == runs.STATUS:
                connection.sendall(
                    f"{os.getpid()} {self._jobs} {len(self._running)} {self._profile}\n".encode()
                )
            elif asked == runs.END:
                self._end()
        connection.close()
        return False

    def _fork(self, connection: socket.socket) -> bool:
        """Raises OSError."""
        pid = os.fork()
        if pid == 0:
            self._become(connection)
            return True
        self._jobs += 1
        with contextlib.suppress(OSError):
            os.utime(self._path)  # the one that was used least ends first
        self._used = time.monotonic()
        self._running[pid] = connection
        self._pids[connection.fileno()] = pid
        self._poll.register(connection.fileno(), select.POLLRDHUP)
        return False

    def _become(self, connection: socket.socket) -> None:
        """In the fork: be the job, or end with a word to the launcher."""
        try:
            signal.set_wakeup_fd(-1)
            connection.settimeout(child.PATIENCE_SECONDS)
            connection.sendall(runs.SEND)
            job, folder, files = child.receive(connection)
            os.fchdir(folder)
            self._checks.check(job)
            child.take_group(job)
            own = os.pidfd_open(os.getpid())
            socket.send_fds(connection, [b"ready %d\n" % os.getpid()], [own])
            if connection.recv(1) != b"g":  # the launcher has become python meanwhile
                os._exit(0)
        except child.Refused as reason:
            _refuse(connection, str(reason))
        except BaseException as error:
            _refuse(connection, f"its fork failed: {error!r}")
        others = [one for one, _ in self._asking.values()]
        for one in (connection, self._listener, *others, *self._running.values()):
            one.detach()  # closed with all other descriptors; the numbers will be the job's
        try:
            child.become(job, files, self._config, self._streams)
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.write(2, f"warmcc: the program was not started: {error!r}\n".encode())
            os._exit(1)

    def _tell(self) -> None:
        """Tell launchers what became of their processes."""
        while self._running:
            try:
                pid, status = os.waitpid(-1, _FLAGS)
            except ChildProcessError:
                return
            if pid == 0:
                return
            connection = self._running.get(pid)
            if connection is None:
                continue
            if os.WIFSTOPPED(status):
                text = f"stopped {os.WSTOPSIG(status)}\n"
            elif os.WIFCONTINUED(status):
                text = "continued 0\n"
            elif os.WIFSIGNALED(status):
                text = f"killed {os.WTERMSIG(status)}\n"
            else:
                text = f"exited {os.WEXITSTATUS(status)}\n"
            with contextlib.suppress(OSError):
                connection.send(text.encode(), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            if os.WIFSIGNALED(status) or os.WIFEXITED(status):
                self._forget(pid)

    def _forget(self, pid: int) -> None:
        connection = self._running.pop(pid)
        del self._pids[connection.fileno()]
        with contextlib.suppress(KeyError):
            self._poll.unregister(connection.fileno())
        connection.close()
        self._used = time.monotonic()

    def _launcher_went(self, descriptor: int) -> None:
        """Kill a process whose launcher has ended: with its group, where that is the job's own.
        It is not reaped yet, so its number is nobody else's."""
        pid = self._pids[descriptor]
        self._poll.unregister(descriptor)
        with contextlib.suppress(OSError):
            if os.getpgid(pid) == pid:
                os.killpg(pid, signal.SIGKILL)
            os.kill(pid, signal.SIGKILL)

    def _look(self) -> None:
        """End when it is time to."""
        now = time.monotonic()
        for descriptor, (connection, since) in list(self._asking.items()):
            if now - since > child.PATIENCE_SECONDS:
                self._poll.unregister(descriptor)
                del self._asking[descriptor]
                connection.close()
        if not self._running and 0 < self._idle < now - self._used:
            self._end()
        try:
            replaced = os.stat(self._path).st_ino != self._inode
        except OSError:
            replaced = True
        if replaced and not self._ending:
            self._end()
        if self._ending and not self._running:
            os._exit(0)

    def _end(self) -> None:
        """Take no more jobs; the process ends with the last one that runs."""
        if not self._ending:
            self._ending = True
            self._poll.unregister(self._listener.fileno())
            with contextlib.suppress(OSError):
                if os.stat(self._path).st_ino == self._inode:
                    os.unlink(self._path)
            os.close(self._lock)


def _refuse(connection: socket.socket, reason: str) -> NoReturn:
    """End this fork; the launcher becomes python."""
    with contextlib.suppress(OSError):
        connection.settimeout(child.PATIENCE_SECONDS)
        text = f"refused {reason}".replace("\n", " ")
        connection.sendall(text.encode("utf-8", "replace") + b"\n")
    os._exit(0)


def _peer(connection: socket.socket) -> tuple[int, int, int]:
    """Process, user and group at the other end."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid, uid, gid = (int.from_bytes(data[i : i + 4], "little", signed=True) for i in (0, 4, 8))
    return pid, uid, gid


def variables(prefixes: tuple[str, ...], late: tuple[str, ...]) -> re.Pattern[bytes]:
    """What finds the names of keyed variables in a text."""
    names = "|".join(re.escape(one) for one in prefixes if len(one) > 3)
    spared = "|".join(re.escape(one) for one in late)
    return re.compile(rf"\b(?!(?:{spared})\b)(?:{names})[A-Z0-9_]*\b".encode())

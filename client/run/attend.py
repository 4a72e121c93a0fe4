"""Stand in for a program that runs in another process, for the one that waits for this process.

Signals: all are blocked, and waited for together with the zygote's words. With a terminal the
program is in this process's group, and the kernel tells both. A signal that was sent to this
process alone is passed on; whether it was, a *witness* knows, a third process in the group. Without
a terminal the program has a group of its own, and both kinds are passed on, to it or to its group.

When the program stops, this process stops, so that the shell knows; when it ends, this process ends
in the same way. The kernel tells the zygote when this process is killed, and it kills the program.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import time
from _socket import socket
from typing import NoReturn

_F_SETSIG = 10
_WORDS = signal.SIGRTMIN + 5  # there is something to read from the zygote
_KERNEL = 0x80  # SI_KERNEL: of a terminal
_ALL = set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}
_NOT_PASSED = {signal.SIGCHLD, signal.SIGURG, _WORDS}
_NOT_KNOWN = b"warmcc: the zygote of this program was killed: its exit code is not known\n"
_PAUSE_SECONDS = 0.001  # until a signal to a group has reached all of it


def block_all() -> set[int]:
    """Block all signals; gives those that were blocked before."""
    return set(signal.pthread_sigmask(signal.SIG_BLOCK, _ALL))


def unblock(mask: set[int]) -> None:
    """Undo ``block_all``, in a process that becomes python."""
    if signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, None):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class Witness:
    """A process in this one's group: what has been sent to the group has been sent to it."""

    def __init__(self) -> None:
        theirs, self._ask = os.pipe()
        self._answer, ours = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.closerange(0, min(theirs, ours, self._ask, self._answer))
            os.close(self._ask)
            os.close(self._answer)
            while question := os.read(theirs, 1):
                seen = signal.sigtimedwait(set(question), 0)
                os.write(ours, b"y" if seen is not None else b"n")
            os._exit(0)
        os.close(theirs)
        os.close(ours)

    def end(self) -> None:
        """Leave no child to a process that becomes python."""
        os.close(self._ask)
        os.waitpid(self._pid, 0)

    def saw(self, number: int) -> bool:
        """Whether a signal was sent to the group since this was last asked."""
        try:
            os.write(self._ask, bytes([number]))
            return os.read(self._answer, 1) == b"y"
        except OSError:
            return False


class Attendant:
    """For a program in process ``pid``; with a ``terminal``, in this process's group."""

    def __init__(
        self, connection: socket, pid: int, descriptor: int, witness: Witness, *, terminal: bool
    ) -> None:
        self._connection, self._pid, self._descriptor = connection, pid, descriptor
        self._witness, self._terminal = witness, terminal
        self._text = b""
        self._zygote_ended = False
        self._errors = -1

    def attend(self, files: list[int]) -> NoReturn:
        """Until the program ends; then this process does. It gives up its files: the other end of
        a pipe learns when the program closes it."""
        empty = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(empty, standard)
        for one in files:
            if one > 2:
                os.close(one)
        number = self._connection.fileno()
        fcntl.fcntl(number, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(number, _F_SETSIG, _WORDS)
        flags = fcntl.fcntl(number, fcntl.F_GETFL)
        fcntl.fcntl(number, fcntl.F_SETFL, flags | os.O_ASYNC | os.O_NONBLOCK)
        self._connection.setblocking(False)
        while True:
            self._read()
            if self._zygote_ended:
                self._attend_alone()
            info = signal.sigtimedwait(_ALL, 0.1 if self._zygote_ended else 60.0)
            if info is not None and info.si_signo not in _NOT_PASSED:
                self._pass_on(info.si_signo, info.si_code)

    def _attend_alone(self) -> None:
        """The zygote was killed, and the program goes on: how it ends is not known. That is said
        where the program writes its errors, while it is there."""
        if self._errors < 0:
            flags = os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_NONBLOCK
            with contextlib.suppress(OSError):
                self._errors = os.open(f"/proc/{self._pid}/fd/2", flags)
        if select.select([self._descriptor], [], [], 0)[0]:
            with contextlib.suppress(OSError):
                os.write(self._errors, _NOT_KNOWN)
            os._exit(1)

    def _pass_on(self, number: int, code: int) -> None:
        if code != _KERNEL:
            time.sleep(_PAUSE_SECONDS)
        seen = self._witness.saw(number) or code == _KERNEL
        try:
            if not seen:
                signal.pidfd_send_signal(self._descriptor, number)
            elif not self._terminal:
                os.killpg(self._pid, number)
        except OSError:  # it has ended
            pass

    def _read(self) -> None:
        try:
            while block := self._connection.recv(4096):
                self._text += block
            self._zygote_ended = True
        except BlockingIOError:
            pass
        except OSError:
            self._zygote_ended = True
        *lines, self._text = self._text.split(b"\n")
        for line in lines:
            word, _, number = line.partition(b" ")
            if word == b"exited":
                os._exit(int(number))
            elif word == b"killed":
                _die_of(int(number))
            elif word == b"stopped":
                os.kill(os.getpid(), signal.SIGSTOP)


def _die_of(number: int) -> NoReturn:
    """End by a signal, without a core: the program has left its own."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    os._exit(128 + number)

"""A shell with job control at a terminal, as a person has it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from pathlib import Path

SECONDS = 60.0


class Terminal:
    """An interactive bash in ``folder``, the leader of a session of its own."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.seen = ""
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):  # as nohup leaves them
                signal.signal(number, signal.SIG_DFL)
            # The prompt's text is not in what is typed
            plain = {"PS1": "$ ", "TERM": "dumb", "HISTFILE": "", "INPUTRC": "/dev/null"}
            os.execvpe(
                "bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"],
                {**environment, **plain},
            )  # fmt: skip

    def send(self, text: str) -> None:
        os.write(self._master, text.encode())

    def expect(self, pattern: str, seconds: float = SECONDS) -> re.Match[str]:
        """Wait for a text, and forget what is in front of its end. Raises AssertionError."""
        deadline = time.monotonic() + seconds
        while (found := re.search(pattern, self.seen)) is None:
            left = deadline - time.monotonic()
            assert left > 0, f"no {pattern!r} in {self.seen!r}"
            if select.select([self._master], [], [], left)[0]:
                self.seen += os.read(self._master, 65536).decode("utf-8", "replace")
        self.seen = self.seen[found.end() :]
        return found

    def run(self, command: str, pattern: str) -> re.Match[str]:
        """Type a command, and wait for a text and the prompt behind it."""
        self.send(f"{command}\n")
        found = self.expect(pattern)
        self.expect(r"\$ $|\$ (?=\r?\n?)")
        return found

    def resize(self, rows: int, columns: int) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def close(self) -> None:
        """Close the window."""
        with contextlib.suppress(OSError):
            os.close(self._master)
        for number in (signal.SIGHUP, signal.SIGKILL):
            with contextlib.suppress(OSError):
                os.kill(self.pid, number)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

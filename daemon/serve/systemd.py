"""Tell systemd how the daemon is, in the words of sd_notify(3); silent without systemd.

The two variables that systemd sets are taken out of the environment, so that no compiler speaks in
the daemon's name.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import MutableMapping

_FIRST_DESCRIPTOR = 3  # SD_LISTEN_FDS_START


class Notifier:
    """Notifies systemd.
    ``interval`` is how often ``watchdog`` has to be called, in seconds; None without a
    watchdog."""

    def __init__(self, environ: MutableMapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        self._address = environ.pop("NOTIFY_SOCKET", "")
        self._told = ""
        limit, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        watched = limit.isdigit() and int(limit) > 0 and pid in ("", str(os.getpid()))
        self.interval = int(limit) / 2e6 if watched else None

    def ready(self) -> None:
        """The socket is open, or the settings are read again."""
        self._send("READY=1")

    def reloading(self) -> None:
        self._send(
            f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}"
        )

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def watchdog(self) -> None:
        self._send("WATCHDOG=1")

    def status(self, text: str) -> None:
        """One line for ``systemctl status``; sent when it is another one than before."""
        if text != self._told:
            self._told = text
            self._send(f"STATUS={text}")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        # systemd may be gone or slow: that must not hold up a build.
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as one,
        ):
            one.setblocking(False)
            one.sendto(message.encode(), address)


def listening(environ: MutableMapping[str, str] | None = None) -> int | None:
    """The descriptor of the socket that systemd opened (sd_listen_fds(3)), or None."""
    environ = os.environ if environ is None else environ
    pid, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or count != "1":
        return None
    os.set_inheritable(_FIRST_DESCRIPTOR, False)
    return _FIRST_DESCRIPTOR

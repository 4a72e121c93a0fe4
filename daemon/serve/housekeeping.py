"""What a running daemon does besides: limit the store, rest and end when idle, end when its folders
are removed, keep systemd informed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable

from warmcc import paths
from warmcc.config import Config
from warmcc.daemon.closure.closure import Closures
from warmcc.daemon.serve import logs
from warmcc.daemon.serve.server import Server
from warmcc.daemon.serve.systemd import Notifier
from warmcc.daemon.store import Store
from warmcc.daemon.store.claim import Claim
from warmcc.daemon.system import bounds

log = logging.getLogger(__name__)

# Until a store that is too large, with all of it in use, is looked through again.
IN_USE_SECONDS = 60.0
_ROUND_SECONDS = 10.0
_HEADERS = 500  # that are read in one round


class Housekeeping:
    """``line`` gives the daemon's status in a line; ``rest`` gives memory back."""

    def __init__(
        self, config: Config, claimed: Claim, store: Store, closures: Closures, server: Server,
        notifier: Notifier, line: Callable[[], str], rest: Callable[[], None],
    ) -> None:  # fmt: skip
        self.config = config
        self._claimed = claimed
        self._store = store
        self._closures = closures
        self._server = server
        self._notifier = notifier
        self._line = line
        self._rest = rest

    async def run(self) -> None:
        """Keep the store under its limit; rest when the daemon is idle, end it when it is idle for
        longer, or unreachable."""
        again = 0.0
        while True:
            await asyncio.sleep(_ROUND_SECONDS)
            # What others write to the log: a crash, the reaper.
            await asyncio.to_thread(logs.keep_errors_to_size)
            await asyncio.to_thread(bounds.remove)  # what could not be removed
            if time.monotonic() > again and not await asyncio.to_thread(self._store.keep_to_limit):
                again = time.monotonic() + IN_USE_SECONDS
            if not self._server.builds.flights.by_key:
                await asyncio.to_thread(self._closures.learn, _HEADERS)
            if 0 < self.config.rest_after < self._idle:
                self._rest()
            if (why := self._why_end()) and not self._server.builds.flights.by_key:
                log.info("%s", why)
                self._server.stopping.set()

    @property
    def _idle(self) -> float:
        """Seconds without a client."""
        return time.monotonic() - self._server.last_message

    def _why_end(self) -> str:
        idle = self._idle
        if 0 < self.config.idle_timeout < idle:
            return f"shutting down: idle for {idle:.0f} s"
        if not paths.socket_path().exists():  # a logout takes /run/user/UID away
            return f"shutting down: {paths.socket_path()} no longer exists, clients cannot connect"
        return ""

    async def each_second(self) -> None:
        """End the daemon if its folders or its programs were removed: a new one makes again what it
        held warm. Send a line of status, and show that the event loop turns."""
        programs = [path for path in (sys.executable, os.__file__, __file__) if _is_there(path)]
        while True:
            if lost := self._lost(programs):
                log.warning("shutting down: %s was removed", lost)
                self._server.stopping.set()
            self._notifier.watchdog()
            self._notifier.status(self._line())
            await asyncio.sleep(min(1.0, self._notifier.interval or 1.0))

    def _lost(self, programs: list[str]) -> str:
        """What was removed that the daemon cannot work without; empty: nothing."""
        if self._claimed.is_lost():
            return str(self._claimed.path)
        wanted = [tempfile.gettempdir(), str(self._claimed.path / "profiles")]
        if not self._server.builds.flights.by_key:  # those still come to an end without programs
            wanted += programs
        return next((path for path in wanted if not _is_there(path)), "")


def _is_there(path: str) -> bool:
    """Whether there is such a file or folder, or that is not known."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass
    return True

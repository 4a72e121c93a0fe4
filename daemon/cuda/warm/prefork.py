"""Forks made ahead of need: the front ends of the lean level that was used last wait for its next
unit, each with its copy of the prelude's memory. The kernel copies it while nobody waits, where it
would do so page by page in a compile.

They hold as much memory again as the level, and are the first to go when something else needs it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from warmcc.daemon.cuda.warm.fork_servers import ServerDied
from warmcc.daemon.cuda.warm.level import Level

log = logging.getLogger(__name__)


class Ahead:
    """Of all profiles. ``quiet`` waits for a moment when nobody does; ``fits`` tells whether there
    is so much memory for them. Methods are called on the event loop."""

    def __init__(self, quiet: Callable[[], Awaitable[None]], fits: Callable[[int], bool]) -> None:
        self._quiet = quiet
        self._fits = fits
        self.level: Level | None = None  # whose they are
        self._task: asyncio.Task[None] | None = None

    @property
    def memory(self) -> int:
        """Bytes that they hold, or may while they are being made."""
        return 0 if self.level is None else self.level.size

    def want(self, level: Level) -> None:
        """Have them made for this level, in the background, instead of those of another."""
        if level is not self.level:
            self.let_go()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._make(level))

    async def _make(self, level: Level) -> None:
        await self._quiet()
        if not level.alive or (self.level is None and not self._fits(level.size)):
            return
        self.level = level
        try:
            for server in level.front_ends:
                await server.fork_ahead()
        except (ServerDied, OSError) as error:
            log.info("no fork ahead of need: %s", error)
            self._release()

    def let_go(self) -> None:
        """Give their memory back."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._release()

    def _release(self) -> None:
        if self.level is not None:
            for server in self.level.front_ends:
                server.let_go()
            self.level = None

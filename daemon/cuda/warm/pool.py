"""Fork servers that profiles have in common.

Most flags matter to one of nvcc's programs: ``--use_fast_math`` to cicc, ``-O2`` or ``-O3`` to g++,
``-Xptxas`` to none that has a server. A server is known by its own program's words and by
the text that it has read, so that profiles whose flags change neither have the same one. It lives
as long as a level of one of them does.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from warmcc.daemon.cuda.warm.fork_servers import ForkServer
from warmcc.daemon.system.background import Haste


@dataclass(eq=False)
class _Place:
    """Where the server of a key is, or is being started."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    haste: Haste = field(default_factory=Haste)  # of the start
    server: ForkServer | None = None

    @property
    def is_free(self) -> bool:
        return not self.lock.locked() and (self.server is None or not self.server.alive)


class Pool:
    """Those of a daemon. Methods are called on the event loop."""

    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}
        self._hints: dict[str, ForkServer] = {}

    async def take(
        self, key: str, haste: Haste, start: Callable[[Haste], Awaitable[ForkServer]], hint: str
    ) -> ForkServer:
        """The server of a key, started if there is none, until ``give_back``. ``hint``: see
        ``is_expected``. Raises what ``start`` raises."""
        if key not in self._places:
            for other in [other for other, place in self._places.items() if place.is_free]:
                del self._places[other]
        place = self._places.setdefault(key, _Place())
        haste.reaches(place.haste)
        async with place.lock:
            self._places[key] = place
            if place.server is None or not place.server.alive:
                haste.reaches(place.haste)
                place.server = await start(place.haste)
                place.haste = Haste()
            place.server.users += 1
            self._hints[hint] = place.server
            return place.server

    def is_expected(self, hint: str) -> bool:
        """Whether there will be a server for something that is not known yet in all parts."""
        self._hints = {known: server for known, server in self._hints.items() if server.alive}
        return hint in self._hints

    async def give_back(self, server: ForkServer) -> None:
        """The last who does closes it, and removes its folder."""
        server.users -= 1
        if server.users > 0:
            return
        for place in self._places.values():
            if place.server is server:
                place.server = None
        self._hints = {hint: one for hint, one in self._hints.items() if one is not server}
        await server.close()
        await asyncio.to_thread(shutil.rmtree, server.folder, True)

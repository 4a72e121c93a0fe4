"""A staging tree for one build, which is left behind by none, also if the build is cancelled."""

from __future__ import annotations

import asyncio
from pathlib import Path

from warmcc.daemon.store.store import Store


async def staging_tree(store: Store) -> Path:
    """A new staging tree. Whoever cancels this while it is being made leaves none behind."""
    making = asyncio.ensure_future(asyncio.to_thread(store.staging))

    def discard(made: asyncio.Future[Path]) -> None:
        if not made.cancelled() and made.exception() is None:
            store.discard(made.result())

    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        making.add_done_callback(discard)
        raise

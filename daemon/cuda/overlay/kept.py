"""The overlays of installed torches on disk, each written once."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from warmcc import digest
from warmcc.daemon.cuda.overlay import bodies, overlay
from warmcc.daemon.system import bounds
from warmcc.daemon.toolchain import Toolchain


class Overlays:
    """Those in a folder. ``in_use`` gives the ones that must not go. ``HEADERS`` of them are the
    lean prelude."""

    HEADERS = overlay.PRELUDE

    def __init__(self, root: Path, in_use: Callable[[], set[str]]) -> None:
        self._root = root
        self._in_use = in_use
        self._lock = asyncio.Lock()  # one writes it, where several need it at the same time

    async def get(self, toolchain: Toolchain) -> Path:
        """The overlay of a toolchain's torch; unused ones are removed. Raises OSError,
        ValueError."""
        async with self._lock:
            place = await asyncio.to_thread(self._written, toolchain)
        bounds.mark_used(place)
        kept = {place, *map(Path, self._in_use())}
        await asyncio.to_thread(bounds.prune, self._root, "*", kept)
        return place

    def _written(self, toolchain: Toolchain) -> Path:
        sources = [digest.of_file(path) for path in sorted(overlay.STUBS.rglob("*.h"))]
        sources += [digest.of_file(Path(str(module.__file__))) for module in (overlay, bodies)]
        place = self._root / digest.of_value([toolchain.digest, sources, overlay.HOST])
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            draft = place.with_suffix(f".{os.getpid()}")
            shutil.rmtree(draft, ignore_errors=True)
            try:
                overlay.write(toolchain.torch_dir, draft)
                draft.rename(place)
            except BaseException:
                shutil.rmtree(draft, ignore_errors=True)
                raise
        return place

"""What the headers of a prelude mention: in their text, and in what comes of it when macros are
expanded.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from pathlib import Path

from warmcc.daemon.cuda.warm import level as levels
from warmcc.daemon.cuda.warm.host_pch import HostPrelude
from warmcc.daemon.cuda.warm.level import Level
from warmcc.daemon.toolchain import Toolchain


def of_host(host: HostPrelude) -> set[str]:
    """The files to look into for what the host's side of torch's headers says."""
    return {str(host.header), *host.read}


def of_level(level: Level) -> set[str]:
    """Those for what front ends have read, and the texts that they got. Raises OSError."""
    found: set[str] = set()
    for server in level.front_ends:
        text = server.folder / levels.PRELUDE
        found.add(str(text))
        found |= levels.files(text.read_text(encoding="utf-8", errors="surrogateescape"))
    return {path for path in found if path.startswith("/")}  # others are names of the compiler's


def mentioned(names: Collection[str], files: Iterable[str], *, whole: bool = False) -> set[str]:
    """Those of the names that any of the files has in it; parts of words count, unless ``whole``.
    Raises OSError.
    """
    left = {name: name.encode() for name in names}
    found: set[str] = set()
    for path in files if left else ():
        content = Path(path).read_bytes()
        for name in [name for name, known in left.items() if known in content]:
            if not whole or re.search(rb"(?<!\w)" + left[name] + rb"(?!\w)", content):
                found.add(name)
                del left[name]
    return found


class HeaderNames:
    """Which names no header of a toolchain has in it, as far as they were asked for. One per
    daemon."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[set[str], set[str]]] = {}  # mentioned, and not, by toolchain

    def unmentioned(self, toolchain: Toolchain) -> set[str]:
        """Those that no header is known to have."""
        return self._of(toolchain)[1]

    async def look(self, toolchain: Toolchain, names: set[str]) -> None:
        """Search for names that nobody has asked for before. Raises OSError."""
        known = self._of(toolchain)
        if new := names.difference(*known):
            found = await asyncio.to_thread(mentioned, new, _headers(toolchain), whole=True)
            known[0].update(found)
            known[1].update(new - found)

    def _of(self, toolchain: Toolchain) -> tuple[set[str], set[str]]:
        assert toolchain.cuda is not None
        key = f"{toolchain.digest} {toolchain.cuda.digest}"
        return self._known.setdefault(key, (set(), set()))


def _headers(toolchain: Toolchain) -> Iterator[str]:
    """All that a compiler may read and is not the user's."""
    assert toolchain.cuda is not None
    torch = os.path.join(toolchain.torch_dir, "include")
    folders = (torch, *chain(*toolchain.cuda.include_folders), *toolchain.include_folders)
    known: set[str] = set()
    for folder in folders:
        for place, _, names in os.walk(os.path.realpath(folder)):
            if place not in known:
                known.add(place)
                yield from (path for name in names if os.path.isfile(path := f"{place}/{name}"))

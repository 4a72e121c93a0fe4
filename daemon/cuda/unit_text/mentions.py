"""What the headers of a prelude mention: in their text, and in what comes of it when macros are
expanded.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path

from warmcc.daemon.cuda.warm import level as levels
from warmcc.daemon.cuda.warm.host_pch import HostPrelude
from warmcc.daemon.cuda.warm.level import Level


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

"""Links that a compiler followed when it looked for a header.

GCC names headers of ``-isystem`` by where links lead, if that is shorter, so that a list of what
was read does not have the links in it. Where one leads elsewhere later, another header is read.
A file in such a folder that leads to one of another name is not seen.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable


def followed(
    folders: Iterable[str], read: Iterable[str], check: Callable[[str], None]
) -> dict[str, str]:
    """The links among ``folders``, and those within them by which a file that was ``read`` can have
    been found, with where they lead. ``check`` is called with each of them.
    Raises what that raises, OSError."""
    links: dict[str, str] = {}
    for folder in dict.fromkeys(folders):
        leads = os.path.realpath(folder)
        if leads != os.path.normpath(folder):
            check(folder)
            links[folder] = leads
        there = _listed(folder)
        for path in read:
            if path.startswith((f"{folder.rstrip('/')}/", f"{leads}/")):
                continue
            names = path.split("/")
            for count in range(1, len(names)):
                if names[-count] not in there:
                    continue
                inside = os.path.join(folder, *names[-count:])
                if os.path.exists(inside) and os.path.realpath(inside) == os.path.realpath(path):
                    check(inside)
                    links[inside] = os.path.realpath(inside)
    return links


def _listed(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()  # no compiler found anything there

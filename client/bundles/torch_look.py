"""Whether torch was installed again: an artifact is packed with the torch that it was built for."""

from __future__ import annotations

import os


def torch_look(torch_dir: str) -> list[int]:
    """What changes when another torch is installed in this folder; empty where there is none."""
    try:
        found = os.stat(os.path.join(torch_dir, "version.py"))
    except OSError:
        return []
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]

"""What the machine allows: space on disk, open files, memory, inotify watches."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

from warmcc import paths
from warmcc.client.cli.checks.finding import Finding
from warmcc.client.cli.display.output import size

_SPACE = 8 << 30  # bytes that a store, precompiled headers and a warm level take


def disk() -> Iterator[Finding]:
    folder = paths.cache_dir()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    advice = (
        "free some space, set WARMCC_CACHE_DIR to another disk, "
        "or lower store_size and profile_size"
    )
    few = free < _SPACE
    yield Finding(
        "disk", "note" if few else "ok", f"{size(free)} free at {folder}", advice if few else ""
    )


def limits() -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = soft < 1024
    yield Finding(
        "open files",
        "bad" if low else "ok",
        f"{soft} (at most {hard})",
        "ulimit -n 4096" if low else "",
    )
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    small = total < 4 << 30
    advice = "set prewarm = [] and cuda_warm = false in the configuration" if small else ""
    yield Finding("memory", "note" if small else "ok", size(total), advice)
    watches = _number("/proc/sys/fs/inotify/max_user_watches")
    few = 0 < watches < 8192
    advice = "sysctl fs.inotify.max_user_watches=65536 (hits are slower without)" if few else ""
    yield Finding("inotify", "note" if few else "ok", f"{watches} watches", advice)


def _number(path: str) -> int:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return 0

"""Where warmcc works: settings, folders and their modes, and stale locks of stock torch."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from warmcc import config, paths
from warmcc.client.cli.checks.finding import Finding
from warmcc.errors import ConfigError, DaemonError

_STALE_SECONDS = 600.0


def settings() -> Iterator[Finding]:
    file = paths.config_file()
    try:
        config.load()
    except ConfigError as error:
        yield Finding("settings", "bad", str(error), "fix it, then run: warmcc config check")
        return
    yield Finding(
        "settings", "ok", str(file) if file.exists() else f"the defaults ({file} does not exist)"
    )


def folders() -> Iterator[Finding]:
    for title, place in (
        ("socket", paths.runtime_dir),
        ("cache", paths.cache_dir),
        ("log", paths.state_dir),
    ):
        try:
            folder = place()
            found = folder.lstat()
        except DaemonError as error:
            text, _, advice = str(error).partition("\n")
            yield Finding(title, "bad", text, advice)
            continue
        except OSError:
            yield Finding(title, "ok", f"{folder} (created on demand)")
            continue
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            yield Finding(
                title,
                "bad",
                f"{folder} is a symlink, or owned by another user",
                "remove it, or ask its owner to",
            )
        elif found.st_mode & 0o077:
            yield Finding(
                title, "bad", f"{folder} is open to others (mode {stat.S_IMODE(found.st_mode):o})",
                f"chmod 700 {folder}", _closing(folder),
            )  # fmt: skip
        elif not os.access(folder, os.W_OK):
            yield Finding(
                title, "bad", f"{folder} cannot be written", f"chmod 700 {folder}", _closing(folder)
            )
        else:
            yield Finding(title, "ok", str(folder))


def _closing(folder: Path) -> Callable[[], str]:
    def close() -> str:
        folder.chmod(0o700)
        return f"{folder} is now private"

    return close


def locks() -> Iterator[Finding]:
    """Stale lock files of stock torch, left by a killed build.
    A build of the same name waits for such a lock forever."""
    root = Path(
        os.environ.get("TORCH_EXTENSIONS_DIR") or os.path.expanduser("~/.cache/torch_extensions")
    )
    stale = [
        lock
        for lock in (*root.glob("*/lock"), *root.glob("*/*/lock"))
        if _age(lock) > _STALE_SECONDS
    ]
    if not stale:
        yield Finding("stock locks", "ok", f"no stale lock in {root}")
    for lock in stale:
        age = f"{lock} is {_age(lock) / 60:.0f} minutes old"
        text = f"{age}: stock torch will wait for this lock forever unless a build is running"
        yield Finding("stock locks", "bad", text, f"rm {lock}", _removing(lock))


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def _removing(lock: Path) -> Callable[[], str]:
    def remove() -> str:
        lock.unlink(missing_ok=True)
        return f"{lock} was removed"

    return remove

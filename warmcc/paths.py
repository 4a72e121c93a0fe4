"""Where things live: one folder each for the socket, the store, the log and the configuration.

Each has a variable that moves it (``WARMCC_RUNTIME_DIR``, ``WARMCC_CACHE_DIR``, ``WARMCC_STATE_DIR``,
``WARMCC_CONFIG``); the rest follows the XDG directories through platformdirs.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
import warnings
from pathlib import Path

from warmcc.errors import DaemonError

BOOTED = Path("/run/warmcc")  # daemons that systemd/warmcc@.service starts
STRUCTURED_LOG = "log.jsonl"
SOCKET_PATH_LIMIT = 107  # sun_path holds 108 bytes with its closing NUL


def _folder(variable: str, fallback: str) -> Path:
    override = os.environ.get(variable)
    if override:
        return Path(os.path.abspath(override))
    import platformdirs

    if told := getattr(platformdirs, "RuntimeDirWarning", None):  # a machine without logind is no news to a user
        warnings.simplefilter("ignore", told)
    try:
        return Path(getattr(platformdirs, fallback)("warmcc"))
    except OSError as error:
        raise DaemonError(f"{error} (or {variable})") from error


def runtime_dir() -> Path:
    """The socket's folder: that of the daemon which the machine started for this user, when there is one."""
    if not os.environ.get("WARMCC_RUNTIME_DIR") and (theirs := _booted_dir()) is not None:
        return theirs
    return _folder("WARMCC_RUNTIME_DIR", "user_runtime_dir")


def _booted_dir() -> Path | None:
    """``/run/warmcc/USER``, which only root can have made and given to this user; it is there while the unit runs."""
    with contextlib.suppress(KeyError, OSError):
        folder = BOOTED / pwd.getpwuid(os.getuid()).pw_name
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and BOOTED.lstat().st_uid == 0:
            return folder
    return None


def cache_dir() -> Path:
    return _folder("WARMCC_CACHE_DIR", "user_cache_dir")


def state_dir() -> Path:
    return _folder("WARMCC_STATE_DIR", "user_state_dir")


def config_file() -> Path:
    override = os.environ.get("WARMCC_CONFIG")
    return (
        Path(os.path.abspath(override)) if override else _folder("WARMCC_CONFIG_DIR", "user_config_dir") / "config.toml"
    )


def socket_path() -> Path:
    """The daemon's socket. Raises DaemonError when the path is longer than a Unix socket's name may be."""
    path = runtime_dir() / "daemon.sock"
    if len(os.fsencode(path)) > SOCKET_PATH_LIMIT:
        raise DaemonError(
            f"the socket's path is longer than {SOCKET_PATH_LIMIT} bytes: {path}\n"
            "Set WARMCC_RUNTIME_DIR to a shorter folder of your own."
        )
    return path


def lock_path() -> Path:
    return runtime_dir() / "daemon.lock"


def log_path() -> Path:
    return state_dir() / "daemon.log"


def private_dir(path: Path) -> Path:
    """Create ``path`` for its owner alone, or check that it is so already.

    Whoever can write here can have code run as this user, so a planted link, another owner or an open mode is an
    error (DaemonError), never repaired in silence.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise DaemonError(f"{path} is not a folder (a link?); remove it")
    if found.st_uid != os.getuid():
        raise DaemonError(f"{path} belongs to uid {found.st_uid}, not to you (uid {os.getuid()})")
    if found.st_mode & 0o077:
        raise DaemonError(f"{path} is open to others (mode {stat.S_IMODE(found.st_mode):o}); run: chmod 700 {path}")
    return path

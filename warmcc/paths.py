"""Where things live: one folder each for the socket, the store, the log and the configuration.

Each has a variable that moves it (``WARMCC_RUNTIME_DIR``, ``WARMCC_CACHE_DIR``,
``WARMCC_STATE_DIR``, ``WARMCC_CONFIG``). The process that starts a daemon chooses all of them, and
hands them over (``settle``).

The socket's folder has to be the same for every process of a user, from a login, cron, a container
or a batch system. It therefore depends on the user and on what is there on the machine, but on no
variable that may differ between two processes: not on ``XDG_RUNTIME_DIR``, ``TMPDIR`` or ``HOME``.
The others follow the XDG directories.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from pathlib import Path

from warmcc.errors import DaemonError

BOOTED = Path("/run/warmcc")  # daemons that systemd/warmcc@.service starts
GCC_PLUGIN = Path(__file__).with_name("gcc_plugin.h")  # what plugins for g++ are compiled with
STRUCTURED_LOG = "log.jsonl"
SOCKET = "daemon.sock"
LOCK = "daemon.lock"
# Everything that a daemon makes in its folders, as patterns: `warmcc cache clear --all` removes it.
CACHE_NAMES = (
    "store", "profiles", "cuda", "plugins", "confine", "hugepages", "contents*", "withdrawn.json*",
    "lean.json*", "beside", "baked.draft", "tmp", "state", "inductor", LOCK,
)  # fmt: skip
STATE_NAMES = (f"{STRUCTURED_LOG}*", "daemon.log*")
RUNTIME_NAMES = (SOCKET, LOCK, "run", "f" + "[0-9a-f]" * 8)
SOCKET_PATH_LIMIT = 107  # sun_path holds 108 bytes with its closing NUL


def _told(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(os.path.abspath(value)) if value else None


def _of_home(variable: str, below: str) -> Path:
    """A folder as the XDG specification has it: a relative path counts as none."""
    value = os.environ.get(variable, "")
    return Path(value if os.path.isabs(value) else os.path.join(_home(), below), "warmcc")


def _home() -> str:
    """The caller's home; as login(1) has it, ``/`` for a user of whom the machine knows none."""
    home = os.environ.get("HOME", "")
    if not os.path.isabs(home):
        with contextlib.suppress(KeyError):
            home = pwd.getpwuid(os.getuid()).pw_dir
    return home if os.path.isabs(home) else "/"


def runtime_dir() -> Path:
    """The folder of the daemon's socket: a running daemon's, else the first usable one.

    A login makes ``/run/user/UID`` while a daemon may run that was started without one: it is found
    all the same. Raises DaemonError when no folder can be used.
    """
    if (told := _told("WARMCC_RUNTIME_DIR") or _booted_dir()) is not None:
        return told
    uid = os.getuid()
    places = [
        Path(f"/run/user/{uid}/warmcc"),
        *(Path(f"/{top}/warmcc-{uid}") for top in ("tmp", "var/tmp", "dev/shm")),
    ]
    for fits in (_has_socket, _usable):
        for place in places:
            with contextlib.suppress(OSError):
                if fits(place):
                    return place
    raise DaemonError(
        "no folder for the daemon's socket: cannot create, or do not own, any of "
        f"{', '.join(map(str, places))}\n"
        "Set WARMCC_RUNTIME_DIR to a writable folder that you own."
    )


def _has_socket(place: Path) -> bool:
    """Raises OSError."""
    return place.lstat().st_uid == os.getuid() and stat.S_ISSOCK((place / SOCKET).lstat().st_mode)


def _usable(place: Path) -> bool:
    """Whether it is this user's, or can be made where others cannot take its place.
    Raises OSError."""
    try:
        found = place.lstat()
    except FileNotFoundError:
        above = place.parent.lstat()
        safe = above.st_mode & stat.S_ISVTX or (
            above.st_uid == os.getuid() and not above.st_mode & 0o022
        )
        return (
            stat.S_ISDIR(above.st_mode)
            and bool(safe)
            and os.access(place.parent, os.W_OK | os.X_OK)
        )
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.getuid()
        and os.access(place, os.W_OK | os.X_OK)
    )


def _booted_dir() -> Path | None:
    """``/run/warmcc/USER``, which root gives to this user while the unit runs."""
    with contextlib.suppress(KeyError, OSError):
        folder = BOOTED / pwd.getpwuid(os.getuid()).pw_name
        found = folder.lstat()
        if (
            stat.S_ISDIR(found.st_mode)
            and found.st_uid == os.getuid()
            and BOOTED.lstat().st_uid == 0
        ):
            return folder
    return None


def cache_dir() -> Path:
    """The folder of the store, the precompiled headers and all that is temporary."""
    return _told("WARMCC_CACHE_DIR") or _of_home("XDG_CACHE_HOME", ".cache")


def bundles_dir() -> Path:
    """The folder of unpacked bundles. The daemon neither writes nor removes it."""
    return _told("WARMCC_BUNDLES") or cache_dir() / "bundles"


def state_dir() -> Path:
    """The log's folder; below the cache where the home cannot be written.
    One variable is then enough."""
    if (told := _told("WARMCC_STATE_DIR")) is not None:
        return told
    above = place = _of_home("XDG_STATE_HOME", ".local/state")
    while not os.path.lexists(above):
        above = above.parent
    return place if os.access(above, os.W_OK | os.X_OK) else cache_dir() / "state"


def config_file() -> Path:
    """The settings' file, whether or not it is there."""
    if (told := _told("WARMCC_CONFIG")) is not None:
        return told
    return (_told("WARMCC_CONFIG_DIR") or _of_home("XDG_CONFIG_HOME", ".config")) / "config.toml"


def socket_path() -> Path:
    """The daemon's socket.
    Raises DaemonError when the path is longer than a Unix socket's name may be."""
    path = runtime_dir() / SOCKET
    if len(os.fsencode(path)) > SOCKET_PATH_LIMIT:
        raise DaemonError(
            f"the socket's path is longer than {SOCKET_PATH_LIMIT} bytes: {path}\n"
            "Set WARMCC_RUNTIME_DIR to a shorter path."
        )
    return path


def lock_path() -> Path:
    return runtime_dir() / LOCK


def log_path() -> Path:
    return state_dir() / "daemon.log"


def settle() -> dict[str, str]:
    """Choose, make and check the daemon's folders; return them as environment variables.

    Raises DaemonError that names the variable to set.
    """
    socket_path()
    wanted = {
        "WARMCC_RUNTIME_DIR": runtime_dir(),
        "WARMCC_CACHE_DIR": cache_dir(),
        "WARMCC_STATE_DIR": state_dir(),
    }
    for variable, place in wanted.items():
        reason = _why_not(place)
        if (
            not reason
            and variable == "WARMCC_CACHE_DIR"
            and os.statvfs(place).f_flag & os.ST_NOEXEC
        ):
            reason = "its file system is mounted noexec: libraries built there cannot be loaded"
        if reason:
            advice = f"Set {variable} to a writable folder that you own."
            raise DaemonError(f"the folder {place} cannot be used: {reason}\n{advice}")
    return {variable: str(place) for variable, place in wanted.items()}


def _why_not(place: Path) -> str:
    try:
        private_dir(place)
    except OSError as error:
        return f"{error.strerror} ({error.filename})"
    return "" if os.access(place, os.W_OK | os.X_OK) else "it cannot be written"


def private_dir(path: Path) -> Path:
    """Create ``path`` for its owner alone, or check that it is so already.

    Whoever can write here can have code run as this user, so a planted link, another owner or an
    open mode is an error (DaemonError), never repaired in silence.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise DaemonError(f"{path} is not a folder (a link?); remove it")
    if found.st_uid != os.getuid():
        raise DaemonError(f"{path} belongs to uid {found.st_uid}, not to you (uid {os.getuid()})")
    if found.st_mode & 0o077:
        raise DaemonError(
            f"{path} is open to others (mode {stat.S_IMODE(found.st_mode):o}); run: chmod 700 "
            f"{path}"
        )
    return path

"""Start a daemon when none runs. Races are settled by the daemon's own lock: whoever comes second ends at once."""

from __future__ import annotations

import os
import subprocess
import sys

from warmcc import paths

_LOG_LIMIT = 8 << 20  # a log that has grown beyond this is put aside as daemon.log.1


def spawn() -> subprocess.Popen[bytes]:
    """Start ``python -m warmcc.daemon`` detached from this process. Raises OSError or DaemonError.

    It starts in the root directory with an environment cut down to what finds Python, the user's folders and torch.
    """
    log = paths.log_path()
    paths.private_dir(log.parent)
    if log.exists() and log.stat().st_size > _LOG_LIMIT:
        log.replace(log.with_suffix(".log.1"))
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "warmcc.daemon"],
            cwd="/",
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
            close_fds=True,
        )
    finally:
        os.close(descriptor)


def _environment() -> dict[str, str]:
    """The caller's environment without what belongs to its process alone (a launcher's rank, a preload, a debugger)."""
    keep = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV")
    prefixes = ("WARMCC_", "XDG_", "CUDA_HOME", "CUDA_PATH", "CCACHE_", "TORCH_CUDA_ARCH_LIST")
    return {key: value for key, value in os.environ.items() if key in keep or key.startswith(prefixes)}


def log_tail(lines: int = 15) -> str:
    """The end of the daemon's log, for an error message."""
    try:
        text = paths.log_path().read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])

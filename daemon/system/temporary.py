"""The temporary files of this process, in a folder that the next daemon clears."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from warmcc import paths
from warmcc.daemon.system.runner import start_of


def take(folder: Path) -> Path:
    """Put this process's temporary files into ``folder``, and remove those of dead processes.
    A killed process leaves nothing, and a service may not be allowed to write into /tmp. From
    here on, TMPDIR no longer says where the caller's folders are."""
    for left in paths.private_dir(folder).iterdir():
        pid, _, start = left.name.partition("-")
        if not pid.isdecimal() or start_of(int(pid)) != start:
            shutil.rmtree(left, ignore_errors=True)
    own = paths.private_dir(folder / f"{os.getpid()}-{start_of(os.getpid())}")
    tempfile.tempdir = os.environ["TMPDIR"] = str(own)
    return own

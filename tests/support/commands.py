"""The command line, in a process, against one daemon."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.daemons import Daemon


def warmcc(daemon: Daemon, *words: str, code: int = 0) -> str:
    """What a command prints."""
    done = subprocess.run(
        [sys.executable, "-m", "warmcc.client.cli", *words],
        env={**os.environ, **daemon.environment}, capture_output=True, text=True, cwd="/",
    )  # fmt: skip
    assert done.returncode == code, done
    return done.stdout if code == 0 else done.stderr

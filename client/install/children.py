"""Each Python that a command starts has warmcc installed: ``warmcc exec`` and ``python -m warmcc``.

A folder with a ``sitecustomize`` of ours stands first in PYTHONPATH, which children inherit. It
calls ``enable``, and then the ``sitecustomize`` that it hides.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

FOLDER = str(Path(__file__).parent / "at_start")
OFF = "WARMCC_INSTALL"  # at 0, no Python installs warmcc at its start
INDUCTOR = "WARMCC_INDUCTOR"  # at 1, each also enables warmcc.inductor


def enable() -> None:
    """Install warmcc, unless the environment says no. Called at the start of a Python."""
    if os.environ.get(OFF) != "0":
        from warmcc.client.install import patches

        patches.install()
        if os.environ.get(INDUCTOR) == "1":
            from warmcc.client.inductor import switch

            switch.enable()


def environment() -> dict[str, str]:
    """The environment of a command whose Pythons have warmcc installed."""
    there = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one != FOLDER]
    found = {**os.environ, "PYTHONPATH": os.pathsep.join([FOLDER, *filter(None, there)])}
    found.pop(OFF, None)
    return found


def run_python(words: list[str]) -> None:
    """Become ``python WORDS``, with warmcc installed in it and in its children.
    Raises OSError."""
    import subprocess

    options = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    argv = [sys.executable, *options, *words]
    os.execve(argv[0], argv, environment())

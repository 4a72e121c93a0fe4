"""How long a client waits for the daemon: for its greeting, its start, its answers."""

from __future__ import annotations

import math
import os

from warmcc.errors import ConfigError

# A daemon that runs answers in milliseconds, on an overloaded machine in a second or two.
GREETING_SECONDS = 5.0
START_SECONDS = 20.0  # it needs to import its parts from a cold disk
BUSY_SECONDS = 600.0  # while too many builds wait for it to take another request
_SILENCE_SECONDS = 15.0  # without any message; a build sends one every second


def silence_limit() -> float:
    """Seconds without a word from the daemon after which it is given up (``WARMCC_TIMEOUT``).
    Raises ConfigError."""
    text = os.environ.get("WARMCC_TIMEOUT", "")
    try:
        seconds = float(text) if text else _SILENCE_SECONDS
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise ConfigError(f"WARMCC_TIMEOUT must be a number of seconds above 0, not {text!r}")
    return seconds

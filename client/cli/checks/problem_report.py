"""``warmcc doctor --report``: one archive to send with a problem, without any sources.

The daemon's logs are written without the values of macros. Here the home folder and the names of
user and machine are taken out as well, as are the values of settings and variables that look like
secrets.
"""

from __future__ import annotations

import getpass
import io
import json
import os
import re
import socket
import tarfile
import time
from collections import deque
from pathlib import Path
from typing import Any

from warmcc import config, paths
from warmcc.errors import ConfigError, RequestError, WarmccError

NAME = "warmcc-report.tar.gz"
_LINES = 2000  # of each log
_SECRET = re.compile(
    r"((?:token|secret|password|passwd|api_?key|credential)\w*[\"']?\s*[=:]\s*[\"']?)[^\s\"',]+",
    re.I,
)


def write(place: Path, findings: list[str]) -> list[str]:
    """Write the archive, and give the names of what is in it.
    ``findings`` are the doctor's lines. Raises RequestError."""
    parts = {
        "doctor.txt": "\n".join([*findings, ""]),
        "settings.json": _settings(),
        "status.json": _status(),
    }
    for name, log in (
        ("requests.jsonl", paths.state_dir() / paths.STRUCTURED_LOG),
        ("daemon.log", paths.log_path()),
    ):
        parts[name] = _end_of(log)
    try:
        with tarfile.open(place, "w:gz") as archive:
            for name, text in parts.items():
                content = without_secrets(text).encode("utf-8", "backslashreplace")
                entry = tarfile.TarInfo(f"warmcc-report/{name}")
                entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o600
                archive.addfile(entry, io.BytesIO(content))
    except OSError as error:
        raise RequestError(
            f"{place} cannot be written: {error.strerror}; name another file with --report FILE"
        ) from None
    return list(parts)


def without_secrets(text: str) -> str:
    """The text without what says whose it is, and without values that look like secrets."""
    names = {os.path.expanduser("~"): "~", socket.gethostname(): "HOST"}
    for name, shown in names.items():
        if len(name) > 1:
            text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", shown, text)
    if (user := _user()) not in ("", "root"):
        text = re.sub(rf"(?<![\w.-]){re.escape(user)}(?![\w.-])", "USER", text)
    return _SECRET.sub(r"\1…", text)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        return ""


def _settings() -> str:
    try:
        return json.dumps(config.shown(config.load()), indent=1)
    except ConfigError as error:
        return str(error)


def _status() -> str:
    from warmcc.client.connection.session import Session
    from warmcc.protocol import Status

    try:
        with Session(autostart=False) as session:
            data: dict[str, Any] = session.ask(Status).data
            return json.dumps(data, indent=1)
    except WarmccError as error:
        return str(error)


def _end_of(log: Path) -> str:
    try:
        with open(log, encoding="utf-8", errors="backslashreplace") as file:
            return "".join(deque(file, _LINES))
    except OSError as error:
        return f"{log}: {error.strerror}\n"

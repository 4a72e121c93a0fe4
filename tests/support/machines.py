"""A machine that systemd has booted, in namespaces of its own on this one: what it starts, it
starts for real.

Its ``/run``, ``/var/cache`` and ``/var/lib`` are empty and go with it; all else is this machine's.
Only the units that a test puts into ``units`` exist. Needs root, and a kernel that grants the
namespaces.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT
from warmcc.client.cli.systemd import _text

UNITS = sorted(path.name for path in (ROOT / "systemd").glob("warmcc*"))
_OF_THE_TEST = """[Service]
Environment={variables}
StandardError=file:{folder}/log
"""
_TARGETS = (
    "sysinit",
    "basic",
    "shutdown",
    "sockets",
    "multi-user",
    "paths",
    "timers",
    "slices",
    "network",
    "default",
)
_BOOT = """
set -e
mount --make-rprivate /
mount -t proc proc /proc
for folder in /run /var/cache /var/lib; do mount -t tmpfs tmpfs $folder; done
touch "$1/console"; mount --bind "$1/console" /dev/console
export container=test SYSTEMD_UNIT_PATH="$1/units" SYSTEMD_LOG_TARGET=console
exec /lib/systemd/systemd --system --unit=default.target --show-status=no
"""
_NAMESPACES = ["--pid", "--mount", "--uts", "--ipc", "--cgroup"]


def why_not() -> str | None:
    """Why this machine cannot boot another one, or None."""
    if os.getuid() != 0:
        return "needs root"
    if not os.path.exists("/lib/systemd/systemd") or shutil.which("systemctl") is None:
        return "systemd is not installed"
    tried = subprocess.run(
        ["unshare", *_NAMESPACES, "--fork", "mount", "--make-rprivate", "/"], capture_output=True
    )
    return None if tried.returncode == 0 else f"no namespaces: {tried.stderr.decode().strip()}"


class Machine:
    """``units`` is where its units are put before ``boot``."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="wcc-systemd-", dir="/tmp"))
        self.units = self.folder / "units"
        self.units.mkdir()
        for name in _TARGETS:
            (self.units / f"{name}.target").write_text("[Unit]\nDefaultDependencies=no\n")
        self._process: subprocess.Popen[bytes] | None = None
        self._init = 0

    def boot(self, seconds: float = 20.0) -> None:
        self._process = subprocess.Popen(
            [
                "unshare",
                *_NAMESPACES,
                "--fork",
                "--kill-child",
                "sh",
                "-c",
                _BOOT,
                "sh",
                str(self.folder),
            ],
            stdout=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + seconds
        while True:
            children = (
                Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
                .read_text()
                .split()
            )
            if children:
                self._init = int(children[0])
                state = self.run("systemctl", "is-system-running", check=False).stdout.strip()
                if state in ("running", "degraded"):
                    return
            assert time.monotonic() < deadline, f"systemd has not booted:\n{self.console()}"
            time.sleep(0.1)

    def run(
        self, *command: str, check: bool = True, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on it. Raises AssertionError with what it said when it fails."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("WARMCC_")}
        done = subprocess.run(
            ["nsenter", "-t", str(self._init), "-m", "-p", "-u", "-i", "-C", *command],
            capture_output=True, text=True, env={**own, **variables}, timeout=240, cwd="/",
        )  # fmt: skip
        assert not check or done.returncode == 0, (
            f"{command}: {done.stdout}{done.stderr}\n{self.console()}"
        )
        return done

    def console(self) -> str:
        path = self.folder / "console"
        return path.read_text(errors="replace") if path.exists() else ""

    def power_off(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def booted(variables: str) -> Iterator[Machine]:
    """A machine with warmcc's units, whose services have these variables beside their own. Skips
    where none boots.
    """
    if (reason := why_not()) is not None:
        pytest.skip(f"no machine can be booted here: {reason}")
    one = Machine()
    try:
        for name in UNITS:
            (one.units / name).write_text(_text(name))
        drop_in = one.units / "warmcc@.service.d"
        drop_in.mkdir()
        (drop_in / "test.conf").write_text(
            _OF_THE_TEST.format(folder=one.folder, variables=variables)
        )
        one.boot()
        yield one
    finally:
        one.power_off()

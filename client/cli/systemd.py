"""``warmcc install-service`` and ``uninstall-service``: the daemon as a systemd service.
It is a user's service, or starts at boot.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pwd
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from warmcc import paths
from warmcc.client.cli.display.output import talk
from warmcc.errors import DaemonUnavailable, RequestError
from warmcc.request import KEYED_ENVIRONMENT

_SYSTEM = Path("/etc/systemd/system")
_RUNS = Path("/run/systemd/system")  # sd_booted(3)
# What decides for which builds the daemon warms up before anybody asks is recorded, but what is for
# one process.
_NOT_RECORDED = {"CUDA_VISIBLE_DEVICES", "SOURCE_DATE_EPOCH"}


@dataclass(frozen=True)
class Service:
    """The units of one kind of service.
    ``enabled`` are those that systemd starts, ``arguments`` those that systemctl needs."""

    folder: Path
    files: tuple[str, ...]
    enabled: str
    arguments: tuple[str, ...] = ()

    def systemctl(self, *command: str) -> str:
        return shlex.join(["systemctl", *self.arguments, *command])


def _service(arguments: argparse.Namespace) -> Service:
    if not arguments.system:
        root = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
        folder = Path(root) / "systemd" / "user"
        return Service(folder, ("warmcc.service", "warmcc.socket"), "warmcc.socket", ("--user",))
    user = arguments.account or os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name
    try:
        pwd.getpwnam(user)
    except KeyError:
        raise RequestError(f"unknown user {user!r}; name one with --for USER") from None
    return Service(_SYSTEM, ("warmcc@.service", "warmcc.slice"), f"warmcc@{user}.service")


def _text(name: str) -> str:
    """A unit with this Python and what this shell says of compilers filled in."""
    names = (name for name in KEYED_ENVIRONMENT if name not in _NOT_RECORDED)
    recorded = {name: os.environ[name] for name in names if os.environ.get(name)}
    lines = "\n".join(f"Environment={_quoted(f'{key}={value}')}" for key, value in recorded.items())
    text = resources.files("warmcc.systemd").joinpath(name).read_text(encoding="utf-8")
    return text.replace("@PYTHON@", _quoted(sys.executable)).replace("@ENVIRONMENT@", lines)


def _quoted(text: str) -> str:
    """A word as systemd.syntax(7) wants it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def add_install_service(parser: argparse.ArgumentParser) -> None:
    add_uninstall_service(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="print the units, and change nothing"
    )


def add_uninstall_service(parser: argparse.ArgumentParser) -> None:
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--user", action="store_true", help="your own daemon, when a client asks (the default)"
    )
    kind.add_argument(
        "--system", action="store_true", help="at boot, as the user that --for names (needs root)"
    )
    parser.add_argument(
        "--for",
        dest="account",
        metavar="USER",
        help="the daemon's user (default: the user who called sudo)",
    )


def cmd_install_service(arguments: argparse.Namespace) -> int:
    service = _service(arguments)
    texts = {service.folder / name: _text(name) for name in service.files}
    if arguments.dry_run:
        for path, text in texts.items():
            print(f"# {path}\n{text}")
        return 0
    if not arguments.system:
        _stop_running()
    try:
        service.folder.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
            talk(f"wrote {path}")
    except OSError as error:
        raise RequestError(
            f"{error.filename}: {error.strerror}; run it as root, or without --system"
        ) from None
    started = all(
        [_run(service, "daemon-reload"), _run(service, "enable", "--now", service.enabled)]
    )
    state = "enabled and started" if started else "installed, but not enabled"
    talk(f"{service.enabled} is {state}")
    talk(f"  how it is:    {service.systemctl('status', service.enabled)}")
    unit = service.enabled.replace(".socket", ".service")
    talk(f"  its log:      journalctl {'--user ' if service.arguments else ''}-u {unit}")
    talk(f"  your changes: {service.systemctl('edit', unit)}")
    if service.arguments:
        talk("  at boot, before you log in: loginctl enable-linger")
    else:
        talk(
            "  settings:     /etc/warmcc/config.toml (then: "
            + service.systemctl("reload", unit)
            + ")"
        )
    return 0 if started else 3


def cmd_uninstall_service(arguments: argparse.Namespace) -> int:
    service = _service(arguments)
    there = [service.folder / name for name in service.files if (service.folder / name).exists()]
    if not there:
        talk(f"nothing to remove: no unit of warmcc in {service.folder}")
        return 0
    _run(service, "disable", "--now", service.enabled)
    if service.arguments:
        _run(service, "stop", "warmcc.service")
    others = [] if service.arguments else _instances(service)
    if others:
        talk(f"the units are kept for {', '.join(others)}")
        return 0
    try:
        for path in there:
            path.unlink()
            talk(f"removed {path}")
    except OSError as error:
        raise RequestError(
            f"{error.filename}: {error.strerror}; run it as root, or without --system"
        ) from None
    _run(service, "daemon-reload")
    if service.arguments:
        talk(f"the cache stays: {paths.cache_dir()}; remove it with: warmcc cache clear --all")
    else:
        talk("the caches stay; remove them with: rm -r /var/cache/warmcc /var/lib/warmcc")
    return 0


def _instances(service: Service) -> list[str]:
    """Other users whose daemon is enabled."""
    wanted = service.folder / "multi-user.target.wants"
    with contextlib.suppress(OSError):
        return sorted(
            path.name for path in wanted.glob("warmcc@*.service") if path.name != service.enabled
        )
    return []


def _stop_running() -> None:
    """A daemon that was started by a client holds the lock: the service's own could not start."""
    from warmcc.client.connection.session import Session
    from warmcc.protocol import Stop

    with contextlib.suppress(DaemonUnavailable), Session(autostart=False) as session:
        session.ask(Stop)
        talk(f"stopped the running daemon (process {session.welcome.pid})")


def _run(service: Service, *command: str) -> bool:
    """Have systemctl do it; where it cannot, say what to run."""
    words = ["systemctl", *service.arguments, *command]
    if not _RUNS.exists() or shutil.which("systemctl") is None:
        talk(f"systemd is not running here; on a machine with systemd, run: {shlex.join(words)}")
        return False
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        talk(f"{shlex.join(words)}: {done.stderr.strip() or f'exit status {done.returncode}'}")
    return done.returncode == 0

"""The command line: a file per group of commands, imported when it is needed.

Exit codes: 0 ok, 1 compile failed or damage found, 2 usage, 3 daemon unavailable, 4 version mismatch, 5 time limit.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import sys
from typing import NoReturn

from warmcc.errors import ConfigError, DaemonTimeout, DaemonUnavailable, VersionMismatch, WarmccError
from warmcc.version import __version__

_EPILOG = """\
examples:
  warmcc start                 start the daemon in the background
  warmcc status                one screen: health, requests, warm state
  warmcc watch kernel.cu --functions f --run "python bench.py"
  warmcc cache prune --size 2GiB
  warmcc config show           every setting, and where it comes from

In Python, `import warmcc` and call warmcc.load_inline(...) as you would torch's: the daemon is started by itself.
"""


class _Parser(argparse.ArgumentParser):
    """argparse with a suggestion for a mistyped command, and warmcc's own style of error."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        print(f"warmcc: {message}", file=sys.stderr)
        sys.exit(2)


def _parser(command: str) -> argparse.ArgumentParser:
    """``command`` is the one whose own arguments matter: others are not imported."""
    layout = argparse.RawDescriptionHelpFormatter
    parser = _Parser(
        prog="warmcc",
        description="A warm compile daemon for PyTorch's inline extensions.",
        epilog=_EPILOG,
        formatter_class=layout,
    )
    parser.add_argument("--version", action="version", version=f"warmcc {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def add(name: str, text: str, example: str, *, json: bool = True) -> argparse.ArgumentParser:
        made = commands.add_parser(
            name, help=text, description=text[0].upper() + text[1:] + ".", epilog=f"example:\n  {example}",
            formatter_class=layout,
        )  # fmt: skip
        if json:
            made.add_argument("--json", action="store_true", help="print data as JSON on standard output")
        return made

    start = add("start", "start the daemon, unless it runs", "warmcc start", json=False)
    start.add_argument("--foreground", action="store_true", help="stay in the foreground and log to the terminal")
    add("stop", "stop the daemon and wait until it is gone", "warmcc stop", json=False)
    add("status", "show what the daemon does and has done", "warmcc status --json | jq .requests")
    add("profiles", "list the precompiled headers, and what had none", "warmcc profiles")
    stats = add("stats", "show requests over time", "warmcc stats --since 7d")
    stats.add_argument("--since", metavar="TIME", default="24h", help="how far back: 90m, 24h, 7d (default: 24h)")
    logs = add("logs", "show the daemon's log", "warmcc logs --follow --level warning")
    logs.add_argument("-f", "--follow", action="store_true", help="go on with what comes")
    logs.add_argument("-n", "--lines", type=int, default=40, metavar="N", help="the last N lines (default: 40)")
    levels = ["debug", "info", "warning", "error"]
    logs.add_argument("--level", choices=levels, default="debug", help="this level and above (default: all)")
    why = add("why", "say why a request was no hit", "warmcc why my_extension")
    trace = add("trace", "show the steps of a build in time", "warmcc trace my_extension --open", json=False)
    for one in (why, trace):
        one.add_argument("what", metavar="NAME|KEY", help="the extension's name, or the beginning of a request key")
    trace.add_argument("-o", "--output", metavar="FILE", help="write the trace for chrome://tracing there")
    trace.add_argument("--svg", metavar="FILE", help="draw the timeline there")
    trace.add_argument("--open", action="store_true", help="draw the timeline and show it")
    doctor = add("doctor", "find out what is wrong, and what to do", "warmcc doctor --fix")
    doctor.add_argument("--fix", action="store_true", help="mend what can be mended: modes of folders, stale locks")
    seed = add("seed", "build a known set of extensions", "warmcc seed extensions.toml", json=False)
    seed.add_argument("paths", nargs="+", metavar="FILE|DIR", help="sets: TOML or JSON, or folders of them")
    cache = add("cache", "look after the store of built extensions", "warmcc cache prune --size 2GiB")
    cache.add_argument(
        "action", choices=["ls", "verify", "prune", "clear"],
        help="ls: list; verify: check every file; prune: evict the least used; clear: remove all that is not in use",
    )  # fmt: skip
    cache.add_argument("--size", metavar="SIZE", help="prune down to this size, such as 2GiB (default: the setting)")
    config = add("config", "show the settings", "warmcc config show")
    config.add_argument(
        "action", choices=["show", "path", "check"],
        help="show: all settings; path: where the file is looked for; check: whether all of it is right",
    )  # fmt: skip
    build = add("build", "build an extension from files", "warmcc build kernel.cu --functions f --diagnostics sarif")
    watch = add(
        "watch", "build whenever a file is saved, and run it", "warmcc watch kernel.cu --functions f --call bench:main"
    )
    if command in ("build", "watch"):
        chosen = importlib.import_module(f"warmcc.client.cli.{command}")
        chosen.add_arguments(build if command == "build" else watch)
    for name, text in (
        ("install-service", "have systemd start the daemon"),
        ("uninstall-service", "undo install-service"),
    ):
        service = add(name, text, f"sudo warmcc {name} --system --for alice", json=False)
        kind = service.add_mutually_exclusive_group()
        kind.add_argument("--user", action="store_true", help="your own daemon, when a client asks (the default)")
        kind.add_argument("--system", action="store_true", help="at boot, as the user that --for names (needs root)")
        service.add_argument("--for", dest="account", metavar="USER", help="whose daemon (default: who called sudo)")
        if name == "install-service":
            service.add_argument("--dry-run", action="store_true", help="print the units, and change nothing")
    add("version", "show the versions of warmcc and of the daemon", "warmcc version")
    return parser


_HOMES = {
    "build": "build",
    "watch": "watch",
    "stats": "history",
    "logs": "history",
    "why": "history",
    "trace": "trace",
    "seed": "seed",
    "doctor": "doctor",
    "start": "service",
    "stop": "service",
    "status": "status",
    "profiles": "status",
    "cache": "cache",
    "config": "settings",
    "install-service": "units",
    "uninstall-service": "units",
    "version": "service",
}
_CODES: list[tuple[type[Exception], int]] = [
    (VersionMismatch, 4),
    (DaemonTimeout, 5),
    (DaemonUnavailable, 3),
    (ConfigError, 2),
    (WarmccError, 3),
]


def _first_word(argv: list[str]) -> str:
    return next((word for word in argv if not word.startswith("-")), "")


def _suggest(argv: list[str]) -> str | None:
    """A near command for one that does not exist."""
    word = _first_word(argv)
    near = difflib.get_close_matches(word, _HOMES, 1) if word not in _HOMES else []
    return near[0] if near else None


def main(argv: list[str] | None = None) -> int:
    """Run a command; gives the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    if (near := _suggest(argv)) is not None:
        print(f"warmcc: there is no such command; did you mean: warmcc {near}", file=sys.stderr)
        return 2
    arguments = _parser(_first_word(argv)).parse_args(argv)
    module = importlib.import_module(f"warmcc.client.cli.{_HOMES[arguments.command]}")
    try:
        code = getattr(module, f"cmd_{arguments.command.replace('-', '_')}")(arguments)
        sys.stdout.flush()
        return int(code)
    except WarmccError as error:
        print(f"warmcc: {error}", file=sys.stderr)
        return next(code for kind, code in _CODES if isinstance(error, kind))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `warmcc status | head`: nobody reads any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0

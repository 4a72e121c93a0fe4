"""The command line: a file per group of commands, imported when it is needed.

Exit codes: 0 ok, 1 compile failed or damage found, 2 usage, 3 daemon unavailable, 4 version
mismatch, 5 time limit.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import sys
from types import ModuleType
from typing import NamedTuple, NoReturn

from warmcc.client.launcher.launch import is_launch, launch
from warmcc.errors import (
    ConfigError,
    DaemonTimeout,
    DaemonUnavailable,
    VersionMismatch,
    WarmccError,
)
from warmcc.version import __version__

_EPILOG = """\
examples:
  warmcc start                 start the daemon in the background
  warmcc status                one screen: health, requests, warm state
  warmcc watch kernel.cu --functions f --run "python bench.py"
  warmcc cache prune --size 2GiB
  warmcc config show           every setting, and where it comes from
  warmcc run train.py          python, with torch imported already
  CXX="warmcc c++" make        compile what includes torch by the daemon (also warmcc nvcc)

In Python, `import warmcc` and call warmcc.load_inline(...) as you would torch's: the daemon starts
by itself.
"""


class _Parser(argparse.ArgumentParser):
    """argparse with a suggestion for a mistyped command, and warmcc's own style of error."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        print(f"warmcc: {message}", file=sys.stderr)
        sys.exit(2)


class _Command(NamedTuple):
    """``module`` has ``cmd_NAME``, and ``add_NAME`` where it has arguments."""

    module: str
    text: str
    example: str
    json: bool = True


COMMANDS = {
    "start": _Command(
        "daemon", "start the daemon if it is not running", "warmcc start", json=False
    ),
    "stop": _Command(
        "daemon", "stop the daemon and wait until it has exited; end the zygotes of warmcc run",
        "warmcc stop", json=False
    ),
    "status": _Command(
        "status", "show the daemon's health and warm state", "warmcc status --json | jq .requests"
    ),
    "profiles": _Command(
        "status", "list the precompiled headers, and the units without one", "warmcc profiles"
    ),
    "stats": _Command("history", "show requests over time", "warmcc stats --since 7d"),
    "logs": _Command("history", "show the daemon's log", "warmcc logs --follow --level warning"),
    "why": _Command("history", "explain why a request was not a hit", "warmcc why my_extension"),
    "trace": _Command(
        "trace", "show the steps of a build in time", "warmcc trace my_extension --open", json=False
    ),
    "analyze": _Command(
        "analysis.analyze", "measure what a build costs with stock torch, and say why",
        "warmcc analyze kernel.cpp --functions f --html report.html",
    ),
    "slim": _Command(
        "analysis.slim", "find the few of torch's headers that a source needs",
        "warmcc slim kernel.cpp",
    ),
    "top": _Command("analysis.top", "watch the daemon's builds, steps and servers", "warmcc top"),
    "doctor": _Command(
        "doctor", "check this machine, and show how to fix problems", "warmcc doctor --fix"
    ),
    "warm": _Command(
        "ahead", "start the daemon, and wait until everything is warm",
        'warmcc warm --flags=-O3 --cuda-flags="-O3 --use_fast_math"', json=False,
    ),
    "seed": _Command(
        "ahead", "build a known set of extensions", "warmcc seed extensions.toml", json=False
    ),
    "cache": _Command(
        "results.cache", "list, verify, prune or clear the store of built extensions",
        "warmcc cache prune --size 2GiB",
    ),
    "remote": _Command(
        "results.remote", "try the store that is shared with other machines", "warmcc remote check"
    ),
    "pack": _Command(
        "results.bundles", "pack built extensions for another machine",
        "warmcc pack kernels.tar.gz --record -- python train.py",
    ),
    "unpack": _Command(
        "results.bundles", "unpack a bundle, so that calls find what is in it",
        "warmcc unpack kernels.tar.gz",
    ),
    "bundles": _Command(
        "results.bundles", "list the unpacked bundles, or remove one", "warmcc bundles rm 1f2e3d4c"
    ),
    "keygen": _Command(
        "results.bundles", "make a key that signs bundles", "warmcc keygen ~/.warmcc-bundles.pem"
    ),
    "stubs": _Command(
        "results.stubs", "write .pyi files, with which editors complete and check calls",
        "warmcc stubs my_extension -o my_extension.pyi", json=False,
    ),
    "config": _Command("config", "show the settings", "warmcc config show"),
    "build": _Command(
        "build", "build an extension from files",
        "warmcc build kernel.cu --functions f --diagnostics sarif",
    ),
    "prebuild": _Command(
        "making.prebuild", "build many variants of an extension into a package to import",
        "warmcc prebuild spec.toml --output dist --wheel",
    ),
    "watch": _Command(
        "watch", "build whenever a file is saved, and run it",
        "warmcc watch kernel.cu --functions f --call bench:main",
    ),
    "exec": _Command(
        "unedited", "run a command whose Pythons have warmcc behind torch's own calls",
        "warmcc exec -- python train.py", json=False,
    ),
    "run": _Command(
        "running.run", "run a Python program in a fork of a process that has torch imported",
        "warmcc run train.py --epochs 3", json=False,
    ),
    "importtime": _Command(
        "measuring.importtime", "show what imports cost by module, and what `warmcc run` saves",
        "warmcc importtime torch --html imports.html",
    ),
    "bench": _Command(
        "measuring.bench", "measure on this machine what a call or a first torch.compile costs",
        'warmcc bench call torch.add "rand(1024)" "rand(1024)"',
    ),
    "enable": _Command(
        "unedited", "have each Python of a virtual environment put warmcc behind torch's calls",
        "warmcc enable --venv .venv", json=False,
    ),
    "disable": _Command("unedited", "undo enable", "warmcc disable --venv .venv", json=False),
    "install-service": _Command(
        "systemd", "let systemd start the daemon",
        "sudo warmcc install-service --system --for alice", json=False,
    ),
    "uninstall-service": _Command(
        "systemd", "undo install-service", "sudo warmcc uninstall-service --system --for alice",
        json=False,
    ),
    "version": _Command(
        "daemon", "show the versions of warmcc and of the daemon", "warmcc version"
    ),
}  # fmt: skip


def _parser(chosen: str) -> argparse.ArgumentParser:
    """The parser; with ``chosen``, only that command's module is imported for its arguments."""
    layout = argparse.RawDescriptionHelpFormatter
    parser = _Parser(
        prog="warmcc",
        description="A warm compile daemon for PyTorch's inline extensions.",
        epilog=_EPILOG,
        formatter_class=layout,
    )
    parser.add_argument("--version", action="version", version=f"warmcc {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        made = commands.add_parser(
            name, help=command.text, description=command.text[0].upper() + command.text[1:] + ".",
            epilog=f"example:\n  {command.example}", formatter_class=layout,
        )  # fmt: skip
        if command.json:
            made.add_argument(
                "--json", action="store_true", help="print data as JSON on standard output"
            )
        if name == chosen:
            add = getattr(_module(name), f"add_{name.replace('-', '_')}", None)
            if add is not None:
                add(made)
    return parser


def help_of(name: str | None) -> str:
    """The help of a command, or of all of them."""
    parser = _parser(name or "")
    if name is None:
        return parser.format_help()
    (commands,) = (
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    )
    made: argparse.ArgumentParser = commands.choices[name]
    return made.format_help()


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"warmcc.client.cli.{COMMANDS[name].module}")


_CODES: list[tuple[type[Exception], int]] = [
    (VersionMismatch, 4), (DaemonTimeout, 5), (DaemonUnavailable, 3), (ConfigError, 2),
    (WarmccError, 3),
]  # fmt: skip


def _first_word(argv: list[str]) -> str:
    return next((word for word in argv if not word.startswith("-")), "")


def _suggest(argv: list[str]) -> str | None:
    """A near command for one that does not exist."""
    word = _first_word(argv)
    near = difflib.get_close_matches(word, COMMANDS, 1) if word not in COMMANDS else []
    return near[0] if near else None


def main(argv: list[str] | None = None) -> int:
    """Run a command; gives the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    if is_launch(argv):
        return launch(argv)
    if argv[:1] == ["run"] and argv[1:2] not in (["-h"], ["--help"]):
        from warmcc.client.run.launch import main as run

        return run(argv[1:])
    if (near := _suggest(argv)) is not None:
        print(f"warmcc: unknown command; did you mean: warmcc {near}", file=sys.stderr)
        return 2
    arguments = _parser(_first_word(argv)).parse_args(argv)
    module = _module(arguments.command)
    try:
        code = getattr(module, f"cmd_{arguments.command.replace('-', '_')}")(arguments)
        sys.stdout.flush()
        return int(code)
    except WarmccError as error:
        print(f"warmcc: {error}", file=sys.stderr)
        return next(code for kind, code in _CODES if isinstance(error, kind))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `warmcc status | head`: the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0

"""Run a compiler's command: by the daemon where it compiles one source against torch's headers, by
the compiler itself otherwise.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import NoReturn

from warmcc.client.launcher.command_line import Command, NotOurs, read
from warmcc.client.launcher.own_headers import include_torch

_COMPILER = re.compile(r".*/.*|(?:gcc|g\+\+)(?:-.*)?|cc|c\+\+|clang.*|nvcc")
_OURS = re.compile(r"(?:[\w.-]+-)?(?:gcc|g\+\+|cc|c\+\+|nvcc)(?:-[\d.]+)?")

# With which g++ writes more files or messages than a daemon that does without them
_VARIABLES = (
    "DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES", "GCC_COMPARE_DEBUG",
    "GCC_EXTRA_DIAGNOSTIC_OUTPUT",
)  # fmt: skip


def is_launch(words: Sequence[str]) -> bool:
    """Whether warmcc's own arguments are a compiler's command: a path, or a compiler's name.

    >>> [is_launch([word]) for word in ("c++", "/usr/bin/g++-12", "status", "nvcc", "./clang++")]
    [True, True, False, True, True]
    """
    return bool(words) and _COMPILER.fullmatch(words[0]) is not None


def main() -> int:
    """The command behind ``warmcc`` in this process's arguments."""
    return launch(sys.argv[1:])


def launch(words: list[str]) -> int:
    """Do what the command says; gives the exit code, if this process does not become the
    compiler."""
    program = real_program(words[0])
    name = os.path.basename(program)
    is_off = os.environ.get("WARMCC_DISABLE") == "1" or any(map(os.environ.get, _VARIABLES))
    if _OURS.fullmatch(name) and not is_off:
        with contextlib.suppress(NotOurs), _interruptible():
            command = read(words[1:], is_nvcc=name == "nvcc")
            ours = _finds_torch(command) and include_torch(command)
            rule = [command.depfile.path] if command.depfile is not None else []
            if ours and all(map(_can_be_written, [command.object, *rule])):
                from warmcc.client.launcher import ask_daemon

                return ask_daemon.compiled(words[0], program, command)
    return become(program, words)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C ends a compiler without a word of it; the daemon cancels what nobody waits for."""
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(130)


def real_program(name: str) -> str:
    """The compiler that a name means, which is not this launcher under that name."""
    if "/" in name:
        return name
    if name == "nvcc" and (home := os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")):
        found = os.path.join(home, "bin", "nvcc")
        if os.access(found, os.X_OK):
            return found
    return shutil.which(name) or ("/usr/local/cuda/bin/nvcc" if name == "nvcc" else name)


def become(program: str, words: list[str]) -> NoReturn:
    """Replace this process by the compiler, under the name that the command has for it; nvcc under
    its whole path, as it looks there for its toolkit. Ends it with 127 where there is none."""
    name = program if words[0] == "nvcc" else words[0]
    try:
        os.execvp(program, [name, *words[1:]])
    except OSError as error:
        print(f"warmcc: {program}: {error.strerror}", file=sys.stderr)
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


def _finds_torch(command: Command) -> bool:
    """Whether headers are looked for among those of this Python's torch."""
    folders = [folder for folder in command.folders if "torch" in folder]
    spec = importlib.util.find_spec("torch") if folders else None
    if spec is None or spec.origin is None:
        return False
    include = os.path.realpath(os.path.join(os.path.dirname(spec.origin), "include"))
    return any(os.path.realpath(folder) == include for folder in folders)


def _can_be_written(path: str) -> bool:
    """Whether a file can be put at a path. Where it cannot, the compiler says so."""
    if os.path.lexists(path) and not os.path.isfile(path):
        return False
    folder = os.path.dirname(path) or "."
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)

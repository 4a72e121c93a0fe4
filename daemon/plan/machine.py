"""What a shared daemon runs for its callers: the configured Pythons, compilers, toolkits.

A caller names one of them. It is never the caller's own text that is run, or looked up in the
caller's ``PATH``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass

import msgspec

from warmcc.config import Config
from warmcc.daemon.toolchain import cuda
from warmcc.errors import ConfigError
from warmcc.request import Interpreter, one_name

_PATH = "/usr/local/bin:/usr/bin:/bin"
_SECONDS = 60.0
_ASK = """
import importlib.machinery, importlib.util, json
torch = importlib.util.find_spec("torch")
print(json.dumps([importlib.machinery.EXTENSION_SUFFIXES[0], torch and torch.origin]))
"""


@dataclass(frozen=True)
class Machine:
    """The programs that callers may use.
    ``path`` is the PATH of every build; ``compilers`` and ``toolkits`` are the values that CC
    and CXX, CUDA_HOME and CUDA_PATH may have; ``interpreters`` the Pythons with their torch."""

    path: str
    compilers: frozenset[str]
    toolkits: frozenset[str]
    interpreters: tuple[Interpreter, ...]

    @classmethod
    def of(cls, config: Config) -> Machine:
        """The machine that a configuration describes.
        Blocks while the Pythons are asked. Raises ConfigError."""
        path = config.path or os.environ.get("PATH") or _PATH
        if wrong := [folder for folder in path.split(os.pathsep) if not os.path.isabs(folder)]:
            raise ConfigError(
                f"path: {wrong[0]!r} is not an absolute folder, which shared = true requires"
            )
        named = {*config.compilers, *filter(None, map(os.environ.get, ("CC", "CXX")))}
        found = {shutil.which(name, path=path) for name in named}
        interpreters = tuple(map(_ask, config.interpreters or [one_name(sys.executable)]))
        return cls(
            path, frozenset(named | {one for one in found if one}), _toolkits(path), interpreters
        )

    def interpreter(self, asked: Interpreter) -> Interpreter | None:
        """The Python of this machine that a caller means, by this machine's names; or None."""
        for own in self.interpreters:
            if asked.abi == own.abi and _same(asked, own):
                return msgspec.structs.replace(own, torch_loaded=asked.torch_loaded)
        return None


def _same(asked: Interpreter, own: Interpreter) -> bool:
    """Whether two paths name the Python of one environment.
    ``python`` and ``python3`` of one environment are the same; those of two environments are
    not, although both may be links to one file."""
    folders = {os.path.dirname(one.executable) for one in (asked, own)}
    programs = {os.path.realpath(one.executable) for one in (asked, own)}
    torches = {os.path.realpath(one.torch_dir) for one in (asked, own)}
    return len(folders) == len(programs) == len(torches) == 1


def _toolkits(path: str) -> frozenset[str]:
    """Where CUDA may be: by the daemon's variables, by nvcc on PATH, and torch's default."""
    named = {
        os.environ.get("CUDA_HOME"),
        os.environ.get("CUDA_PATH"),
        cuda.home({"PATH": path}),
        "/usr/local/cuda",
    }
    return frozenset(
        place for home in filter(None, named) for place in (home, os.path.realpath(home))
    )


def _ask(executable: str) -> Interpreter:
    """A Python with the torch that it has. Raises ConfigError."""
    reason = "it has no torch"
    try:
        done = subprocess.run(
            [executable, "-I", "-c", _ASK], capture_output=True, text=True, check=True, cwd="/",
            timeout=_SECONDS,
        )  # fmt: skip
        abi, torch = json.loads(done.stdout)
        if torch:
            return Interpreter(executable, abi, os.path.dirname(torch))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        reason = f"its torch cannot be found: {error}"
    raise ConfigError(
        f"shared = true builds for {executable}, but {reason}; name the Pythons that callers use "
        "in interpreters"
    )

"""Inductor's trials of vector instructions, remembered between processes.

For each kind of instructions Inductor compiles a small source, and loads it in a new process that
imports torch: the former once per cache folder, the latter in each process that compiles. What a
trial depends on is in the name of a file that says that it succeeded. Failed ones are not kept.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from warmcc import digest, paths
from warmcc.client.calls import arguments as args
from warmcc.client.calls import bundled
from warmcc.client.inductor import commands, packed, way_back
from warmcc.errors import DaemonError, OfflineError

FOLDER = "inductor"
_FORMAT = 1
_UNKNOWN = (OSError, AttributeError, TypeError, ImportError, ValueError)  # in another torch
_VARIABLES = (
    "LD_LIBRARY_PATH", "LD_PRELOAD", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH",
    "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "PATH", "PYTHONPATH",
)  # fmt: skip
_PROCESSOR = re.compile(r"^(?:flags|Features|model name|CPU part|features)\s*:.*$", re.M)


def remembered(original: Callable[..., Any]) -> Callable[..., Any]:
    """What stands in the place of ``VecISA.check_build``."""

    @functools.wraps(original)
    def check_build(self: Any, code: str) -> Any:
        if way_back.is_off() or bundled.is_recorded():
            return original(self, code)
        place = _place(self, code)
        if (place is not None and place.exists()) or _is_packed(self, code):
            return True
        found = original(self, code)
        if found is True and place is not None:
            with contextlib.suppress(OSError):
                place.touch(0o600)
        return found

    return check_build


def _place(isa: Any, code: str) -> Path | None:
    """The file that says that a trial succeeded; None where what it depends on cannot be told."""
    try:
        folder = paths.private_dir(paths.private_dir(paths.cache_dir()) / FOLDER)
        compiler, line = _command(isa)
        known = [code, line, _version(compiler), *_circumstances()]
        return folder / digest.of_value([_FORMAT, *known])
    except (*_UNKNOWN, DaemonError):
        return None


def _version(compiler: str) -> str:
    from torch._inductor.cpp_builder import get_compiler_version_info

    return str(get_compiler_version_info(compiler))


def _is_packed(isa: Any, code: str) -> bool:
    """Whether a bundle has the library of a trial for this machine: it succeeded where that was
    made, with the same torch, and on a processor that has no more abilities than this one."""
    if not bundled.are_there():
        return False
    try:
        command = commands.split(shlex.split(_command(isa)[1]))
        return packed.answer(commands.as_request(command, code)) is not None
    except (*_UNKNOWN, way_back.Left, args.NotCarried, OfflineError):
        return False


def _command(isa: Any) -> tuple[str, str]:
    """The compiler, and the command that would compile it, with names in place of its files."""
    from torch._inductor.cpp_builder import CppBuilder, CppTorchOptions

    options = CppTorchOptions(vec_isa=isa, warning_all=False)
    line = CppBuilder("name", ["/source.cpp"], options, "/folder").get_command_line()
    return options.get_compiler(), line


def _circumstances() -> list[Any]:
    """The programs, torch's libraries, the processor, and variables. Raises OSError."""
    import torch

    program = os.environ.get("CXX", "g++").split(" ")[0]
    libraries = Path(torch.__file__).parent / "lib"
    files = [shutil.which(name) or name for name in (program, "g++", "as", "ld")]
    files += [sys.executable, *map(str, sorted(libraries.glob("lib*.so*")))]
    return [
        str(torch.__version__), sys.version, platform.release(), _processor(),
        [_look(path) for path in files], [os.environ.get(name) for name in _VARIABLES],
    ]  # fmt: skip


def _look(path: str) -> list[Any]:
    """What changes when a file is replaced; its path alone where it is not there."""
    try:
        real = os.path.realpath(path)
        found = os.stat(real)
    except OSError:
        return [path]
    return [real, found.st_size, found.st_mtime_ns, found.st_ino]


@functools.cache
def _processor() -> list[str]:
    """Raises OSError."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    return sorted(set(_PROCESSOR.findall(text)))

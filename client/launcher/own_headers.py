"""Whether a source includes torch: most files of a large project do not, and its compiler does
them in less time than the daemon needs to say so.
"""

from __future__ import annotations

import os
import re

from warmcc.client.launcher.command_line import Command

_FILES = 64  # that are looked into; with more it counts as including torch
_INCLUDE = re.compile(rb"^[ \t]*#[ \t]*(?:include|include_next|import)\b[ \t]*([^\n]*)", re.M)
_NAME = re.compile(rb"[<\"]([^>\"\n]+)[>\"]")
_OF_TORCH = re.compile(rb"(?:torch|ATen|c10|caffe2|pybind11)/|Python\.h$")


def include_torch(command: Command) -> bool:
    """Whether the command's source, or what it includes of the user's, includes torch; also where
    that cannot be told."""
    folders = [os.path.realpath(path) for path in command.folders]
    left = [command.source, *_forced(command.flags)]
    seen: set[str] = set()
    while left:
        path = os.path.realpath(left.pop())
        if path in seen:
            continue
        seen.add(path)
        names = _names(path)
        if names is None or len(seen) > _FILES or any(map(_OF_TORCH.match, names)):
            return True
        for name in names:
            places = [os.path.dirname(path), *folders]
            found = (os.path.join(place, os.fsdecode(name)) for place in places)
            left += [one for one in found if os.path.isfile(one)][:1]
    return False


def _forced(flags: list[str]) -> list[str]:
    """Headers that flags include in front of the source."""
    options = ("-include", "-imacros", "--pre-include")
    return [flags[at + 1] for at, flag in enumerate(flags[:-1]) if flag in options]


def _names(path: str) -> list[bytes] | None:
    """The names of a file's headers; None where a macro says one, or the file cannot be read."""
    try:
        with open(path, "rb") as file:
            found = [_NAME.match(rest) for rest in _INCLUDE.findall(file.read())]
    except OSError:
        return None
    return None if None in found else [one[1] for one in found if one is not None]

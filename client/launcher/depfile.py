"""The rule of a Makefile that a compiler writes beside its object (``-MD``, ``-MMD``)."""

from __future__ import annotations

import os

from warmcc.client.launcher.command_line import Command, Depfile, quoted

_SYSTEM = ("/usr/include/", "/usr/lib/", "/usr/local/include/", "/usr/local/cuda")


def text(command: Command, wanted: Depfile, depends: list[str]) -> str:
    """The rule, with what the compiler read. The source comes first, as it is written; a file below
    the working directory is named as the command names files: from there, or absolutely."""
    folder = os.getcwd()
    source = os.path.join(folder, command.source)
    names = [command.source]
    relative = not os.path.isabs(command.source)
    system = tuple(f"{os.path.join(folder, path).rstrip('/')}/" for path in command.system)
    for path in depends:
        if path == source or (not wanted.system and path.startswith((*_SYSTEM, *system))):
            continue
        inside = path.startswith(f"{folder}/")
        names.append(os.path.relpath(path, folder) if relative and inside else path)
    rule = f"{' '.join(wanted.targets)}: " + " \\\n ".join(map(quoted, names)) + "\n"
    if wanted.phony:
        rule += "".join(f"{quoted(name)}:\n" for name in names[1:])
    return rule

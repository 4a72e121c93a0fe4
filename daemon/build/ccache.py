"""ccache in front of compiles that have no accelerator, told what it cannot know.

In its depend mode it compares the files that were read, and neither what was looked for in vain (a
header that appears further in front, ``__has_include``) nor what an assembler reads. So the names
in all folders that are searched go into its idea of the compiler: what could change where a header
is found makes another compile. And an object that came out of it is thrown away, and compiled, if a
file of the user's may hold assembler or lies in none of those folders.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from warmcc import digest
from warmcc.daemon.closure import assembler_reads
from warmcc.daemon.closure.seen import within
from warmcc.daemon.toolchain import ninja

_LIMIT = 5000  # entries of the user's folders; more are not listed, and not cached


def search_state(users: Iterable[str], toolchain: Iterable[str]) -> str | None:
    """A digest of all names that decide where a header is found; None for too many names.

    All of the user's folders go in whole. Of the toolchain's go in the names on top, and where
    several have a folder of one name, which hides no other, the names below it.
    """
    users, toolchain = list(dict.fromkeys(users)), list(dict.fromkeys(toolchain))
    listed: list[object] = []
    count = 0
    for folder in users:
        for path, folders, files in os.walk(folder, followlinks=True):
            count += 1 + len(files)
            if count > _LIMIT:
                return None
            folders.sort()
            listed.append([path, folders.copy(), sorted(files)])
    return digest.of_value([users, toolchain, listed, _merged(toolchain)])


def _merged(folders: list[str]) -> list[object]:
    """The names in folders that are searched in order, where they can hide another's."""
    found: dict[str, list[str]] = {}
    state: list[object] = []
    for folder in folders:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            entries = []
        state.append([folder, [entry.name for entry in entries]])
        for entry in entries:
            if entry.is_dir():
                found.setdefault(entry.name, []).append(entry.path)
    return [state, *(_merged(paths) for _, paths in sorted(found.items()) if len(paths) > 1)]


def settings(folder: Path, toolchain_digest: str, state: str) -> dict[str, str]:
    """The variables for ccache; it logs what it did into ``folder``."""
    return {
        "CCACHE_DEPEND": "1",
        "CCACHE_SLOPPINESS": "pch_defines,time_macros",
        "CCACHE_PCH_EXTSUM": "1",
        "CCACHE_COMPILERCHECK": f"string:{toolchain_digest}{state}",
        "CCACHE_IGNOREOPTIONS": "--param=ggc-min-heapsize=*",
        "CCACHE_STATSLOG": str(folder / "ccache.log"),
    }


def hits(folder: Path) -> int:
    """How many objects came out of it since this was last asked."""
    log = folder / "ccache.log"
    try:
        text = log.read_text()
        log.unlink()
    except OSError:
        return 0
    return len(re.findall(r"^(?:direct|preprocessed)_cache_hit$", text, re.M))


def was_blind(
    made: Path, cwd: Path, text: str | None, is_toolchain: Callable[[str], bool],
    searched: Iterable[str],
) -> bool:  # fmt: skip
    """Whether an object came out of ccache although that cannot know all that a compile would read.

    ``made`` is the object, ``text`` an inline source's, ``searched`` are the user's folders in
    ``search_state``.
    """
    if not made.exists() or os.path.exists(f"{made}{assembler_reads.SUFFIX}"):
        return False  # it was compiled: ccache keeps no file of the assembler's
    folders = [os.path.realpath(folder) for folder in searched]
    try:
        users = [
            path for path in ninja.dependencies(Path(f"{made}.d"), cwd) if not is_toolchain(path)
        ]
        if text is not None and assembler_reads.in_text(text):
            return True
        outside = (
            path
            for path in users
            if not any(within(os.path.realpath(path), folder) for folder in folders)
        )
        return next(outside, None) is not None or assembler_reads.first(users) is not None
    except OSError:
        return True

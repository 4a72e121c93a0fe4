"""Which flags share a profile: those that cannot change what a prelude parses to.

Each rule can be proved: warnings change no code, and a compiler does not read what is meant for the
linker (with which it would try to link a header); a macro that no header mentions is checked by g++
itself, which refuses the PCH otherwise; a folder matters only if it holds a name that the prelude's
includes could find in it.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Container
from dataclasses import dataclass

from warmcc.daemon.toolchain.flags import folders

_WARNING = re.compile(r"-W(?!p,|a,|l,)[\w+-]*(?:=[\w+-]+)?|-w")
MACRO = re.compile(r"-[DU]([A-Za-z_]\w*)(?:=(.*))?", re.A | re.S)
PLAIN_MACRO = re.compile(
    r"-D((?!__|TORCH_|C10_|AT_)[A-Za-z_]\w*)(?:=([^\n\\]*))?", re.A
)  # such prefixes are the headers'
_LINKERS = re.compile(r"-[lL].*|-Wl,.*", re.S)
_RENAMES = re.compile(r"-f(?:file|macro|debug)-prefix-map=([^=]*)=[^=]*")
_ONE_OF = ("-O", "-std=")  # the last one counts
_REPEATED = re.compile(r"-(?:O|std=|[fgm]|[DU]\w)")
_FOLDER = ("-isystem", "-iquote", "-idirafter", "-I")
_ALWAYS_FREE = "TORCH_EXTENSION_NAME"


@dataclass(frozen=True)
class Reduced:
    """The ``flags`` of the profile that a unit shares with others.
    ``folders`` of the caller's were left out of them; ``with_folders`` are the flags for when
    one of these matters after all."""

    flags: list[str]
    with_folders: list[str]
    folders: list[str]


def reduce(
    words: list[str], users: list[str], mentioned: set[str],
    owned: Container[str] = (), places: Collection[str] = (),
) -> Reduced:  # fmt: skip
    """A unit's flags without those that do not matter to a prelude.

    ``users`` are those of the flags that the caller gave, and folders of headers that count like
    the caller's, ``mentioned`` macros that headers are known to mention; ``owned`` folders, torch's
    own among them, are no caller's, whoever names them. ``places`` are all that headers of a
    prelude come from, where that is known.

    >>> words = ["-O2", "-Wall", "-DN=3", "-DUSE_X", "-I/a", "-lcudart", "-L", "/b"]
    >>> reduce(words, ["-DN=3", "-DUSE_X"], {"USE_X"})
    Reduced(flags=['-O2', '-DUSE_X'], with_folders=['-O2', '-DUSE_X', '-I/a'], folders=['/a'])
    """
    words = _without_repeated(words)
    macros = Counter(match[1] for word in words if (match := MACRO.fullmatch(word)))
    given = {match[1] for word in users if (match := MACRO.fullmatch(word))} | {_ALWAYS_FREE}
    callers = set(folders(users))
    free = {name for name in given if macros[name] == 1} - mentioned
    flags: list[str] = []
    with_folders: list[str] = []
    left_out: list[str] = []
    rest = iter(words)
    for word in rest:
        pair = [word, next(rest, "")] if word in (*_FOLDER, "-l", "-L") else [word]
        if _LINKERS.fullmatch(word):
            continue
        if is_warning(word) or ((match := MACRO.fullmatch(word)) and match[1] in free):
            continue
        with_folders += pair
        folder = _folder(pair)
        if folder and (word.startswith("-I") or folder in callers) and folder not in owned:
            left_out.append(folder)
        elif not (places and renames_none(word, places)):
            flags += pair
    return Reduced(flags, with_folders, left_out)


def _without_repeated(words: list[str]) -> list[str]:
    """The words without those that stand again further behind, and all levels of optimisation and
    standards but the last. A ``setup.py`` has Python's own ``-O3`` and the package's.

    >>> _without_repeated("-O3 -g -DA -fPIC -I/a -O2 -UA -DA -O3 -I/a -fPIC".split())
    ['-g', '-I/a', '-UA', '-DA', '-O3', '-I/a', '-fPIC']
    """
    if any(word.startswith("-X") for word in words):  # of which the next word is a part
        return words
    kept: list[str] = []
    seen: set[str] = set()
    for word in reversed(words):
        one = next((option for option in _ONE_OF if word.startswith(option)), word)
        if _REPEATED.match(word) and one in seen:
            continue
        seen.add(one)
        kept.append(word)
    return kept[::-1]


def renames_none(word: str, places: Collection[str]) -> bool:
    """Whether it gives other names to files (``__FILE__``, debugging), none of them from here."""
    match = _RENAMES.fullmatch(word)
    if match is None or not match[1].startswith("/"):
        return False
    return not any(
        f"{place}/".startswith(match[1]) or match[1].startswith(f"{place}/")
        for place in (place.rstrip("/") for place in places)
    )


def is_warning(word: str) -> bool:
    """Whether it is about warnings alone."""
    return _WARNING.fullmatch(word) is not None


def _folder(pair: list[str]) -> str:
    """The folder that an option adds to the search for headers, or nothing."""
    if len(pair) == 2:
        return pair[1]
    option = next((option for option in _FOLDER if pair[0].startswith(option)), "")
    return pair[0][len(option) :] if option else ""


def any_matters(folders: list[str], names: frozenset[str]) -> bool:
    """Whether one of the folders holds something that an include of the prelude could mean."""
    return any(not names.isdisjoint(_names(folder)) for folder in folders)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []  # what is not there is not searched

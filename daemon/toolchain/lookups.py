"""Where a compiler's driver looks for its parts, for headers and for libraries.
What it found, and what must stay missing for it to find the same again (another ``as`` further in
front on PATH is another toolchain).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable

from warmcc import digest

Ask = Callable[..., str]

# Folders of the caller's that the compiler takes from variables: behind -I, and behind -isystem.
_LIKE_I = ("CPATH",)
_LIKE_ISYSTEM = ("CPLUS_INCLUDE_PATH",)


def programs(
    argv: list[str], environment: dict[str, str], ask: Ask, parts: Iterable[str]
) -> tuple[list[str], set[str]]:
    """The driver, its link target, and the parts that it runs; and paths that must stay missing."""
    found = [argv[0], os.path.realpath(argv[0])]
    missing: set[str] = set()
    own = _listed(ask(argv, environment, "-print-search-dirs"), "programs")
    path = [folder or "." for folder in environment.get("PATH", os.defpath).split(os.pathsep)]
    for part in parts:
        name = ask(argv, environment, f"-print-prog-name={part}").strip()
        for folder in own if os.path.isabs(name) else [*own, *path]:
            candidate = os.path.join(folder, part)
            if os.access(candidate, os.X_OK) and os.path.isfile(candidate):
                found += [candidate, os.path.realpath(candidate)]
                break
            if not os.path.lexists(candidate):
                missing.add(_shortest(candidate))
        if os.path.isfile(name):
            found += [name, os.path.realpath(name)]
    return [path for path in dict.fromkeys(found) if os.path.isfile(path)], missing


def named(found: list[str], driver: str) -> list[list[str]]:
    """The names and the contents of programs. A link to the driver is left out: one compiler has
    several names (c++, g++, g++-12), and makes the same under each."""
    return [
        [os.path.basename(path), digest.of_file(path)]
        for path in found
        if path != driver or not os.path.islink(path)
    ]


def headers(
    argv: list[str], environment: dict[str, str], ask: Ask
) -> tuple[list[str], set[str], str]:
    """The compiler's own folders of headers, in its order.
    Those of the caller's variables are left out. Also the folders that it would search if they
    were there; and all that it said, for when the first are none."""
    text = ask(argv, without_variables(environment), "-E", "-v", "-x", "c++", "/dev/null")
    match = re.search(
        r"#include <\.\.\.> search starts here:\n(.*?)\nEnd of search list", text, re.S
    )
    found = (
        [os.path.realpath(line.strip()) for line in match[1].split("\n")]
        if match is not None
        else []
    )
    return found, set(re.findall(r'^ignoring nonexistent directory "(.*)"$', text, re.M)), text


def libraries(argv: list[str], environment: dict[str, str], ask: Ask) -> list[str]:
    """The folders in which the driver and its linker look for libraries without being told to."""
    found = _listed(ask(argv, environment, "-print-search-dirs"), "libraries")
    linker = ask(argv, environment, "-print-prog-name=ld").strip()
    found += (
        re.findall(r'SEARCH_DIR\("=?([^"]*)"\)', ask([linker], environment, "--verbose"))
        if linker
        else []
    )
    return list(dict.fromkeys(found))


def header_search(words: list[str], own: list[str], environment: dict[str, str]) -> list[str]:
    """The folders in which a compile looks for headers, in its order.

    ``own`` are the compiler's. A folder of ``-I`` that is one of them, or of ``-isystem``, is
    looked into there only.
    """
    given = by_option(words)
    system = [*given["-isystem"], *_of(environment, _LIKE_ISYSTEM), *own]
    theirs = {os.path.realpath(folder) for folder in system}
    plain = [*given["-I"], *_of(environment, _LIKE_I)]
    plain = [folder for folder in plain if os.path.realpath(folder) not in theirs]
    return [*given["-iquote"], *plain, *system, *given["-idirafter"]]


def named_by_links(words: list[str], environment: dict[str, str]) -> list[str]:
    """The caller's folders whose headers GCC names by where links lead, if that is shorter."""
    given = by_option(words)
    return [*given["-isystem"], *given["-idirafter"], *_of(environment, _LIKE_ISYSTEM)]


def library_candidates(words: list[str], own: list[str], environment: dict[str, str]) -> list[str]:
    """Every file that a linker may take for the libraries that flags name."""
    words = [
        part
        for word in words
        for part in (word.split(",")[1:] if word.startswith("-Wl,") else [word])
    ]
    folders = [*_values(words, "-L"), *_of(environment, ("LIBRARY_PATH",)), *own]
    libraries = [*_values(words, "-l"), "stdc++", "m", "gcc_s", "gcc", "c"]
    names: dict[str, None] = {}
    for library in libraries:
        names.update(
            dict.fromkeys(
                [library[1:]] if library[0] == ":" else [f"lib{library}.so", f"lib{library}.a"]
            )
        )
    return [os.path.join(folder, name) for folder in dict.fromkeys(folders) for name in names]


def by_option(words: list[str]) -> dict[str, list[str]]:
    """The folders that flags add to the search for headers, by the option that does."""
    return {
        option: _values(words, option) for option in ("-iquote", "-I", "-isystem", "-idirafter")
    }


def of_variables(environment: dict[str, str]) -> list[str]:
    """The folders that variables add to the search for headers of C++."""
    return _of(environment, (*_LIKE_I, *_LIKE_ISYSTEM))


def without_variables(environment: dict[str, str]) -> dict[str, str]:
    """The same without these variables."""
    ours = (*_LIKE_I, *_LIKE_ISYSTEM)
    return {name: value for name, value in environment.items() if name not in ours}


def as_system(
    words: list[str], folders: list[str], environment: dict[str, str]
) -> tuple[list[str], dict[str, str]]:
    """A call of a compiler with a caller's ``folders`` as those of the system, which are searched
    in the same order. None of them is one of the compiler's own.

    >>> words = ["g++", "-isystem", "/t", "-I/a", "-I", "/b", "-I/t"]
    >>> as_system(words, ["/a", "/c", "/t"], {"CPATH": "/c"})
    (['g++', '-isystem', '/a', '-isystem', '/c', '-isystem', '/t', '-I', '/b', '-I/t'], {})
    """
    system = {os.path.realpath(folder) for folder in by_option(words)["-isystem"]}
    moved = {folder for folder in folders if os.path.realpath(folder) not in system}
    found: list[str] = []
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        pair = [word, next(rest, "")] if word == "-I" else [word]
        named = pair[-1] if len(pair) == 2 else word[2:] if word.startswith("-I") else ""
        if named in moved:
            found += ["-isystem", named]
        else:
            kept += pair
    for folder in _of(environment, _LIKE_I):
        found += ["-isystem", folder] if folder in moved else []
    left = {name: value for name, value in environment.items() if name not in _LIKE_I}
    return [*kept[:1], *found, *kept[1:]], left


def _values(words: list[str], option: str) -> list[str]:
    """What is said with an option, as one word or two."""
    found, previous = [], ""
    for word in words:
        if previous == option:
            found.append(word)
            word = ""
        elif word.startswith(option) and word != option:
            found.append(word[len(option) :])
        previous = word
    return [value for value in found if value]


def _of(environment: dict[str, str], names: tuple[str, ...]) -> list[str]:
    """The folders in variables; an empty one is the working directory."""
    return [
        folder or "."
        for name in names
        if name in environment
        for folder in environment[name].split(os.pathsep)
    ]


def _listed(text: str, kind: str) -> list[str]:
    """One of the lists of ``-print-search-dirs``."""
    match = re.search(rf"^{kind}: =?(.*)$", text, re.M)
    return (
        [os.path.normpath(folder) for folder in match[1].split(os.pathsep) if folder]
        if match is not None
        else []
    )


def _shortest(path: str) -> str:
    """The first part of a missing path that is missing."""
    while not os.path.lexists(parent := os.path.dirname(path)) and parent != path:
        path = parent
    return path

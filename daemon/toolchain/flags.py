"""What flags alone tell: whether a result has a key, and depends on the directory.

Both are conservative. A flag that is not recognised as harmless counts as the worse case.
"""

from __future__ import annotations

import os
import re

from warmcc.daemon.toolchain import lookups, shell

# Flags that read what the closure does not list, write elsewhere, or replace parts of the compiler.
_UNKEYABLE = re.compile(
    r"@.+|-B.*|-specs=.*|--specs=.*|-fplugin.*|-fpass-plugin.*|-wrapper|-no-canonical-prefixes"
    r"|-fprofile-use.*|-fprofile-instr-use.*|-fauto-profile.*|-fbranch-probabilities|-fmodules.*"
    r"|-fmodule-.*"
    r"|-save-temps.*|--save-temps.*|-o.*(?<!s)|-M[A-Z]*|-MF.*|-MT.*|-MQ.*|-E|-S|-c|-fdump-.*"
    r"|-dumpbase.*|-dumpdir.*"
    r"|-fsyntax-only|-fcallgraph-info.*|-fstack-usage|-gsplit-dwarf|-ftest-coverage|--coverage"
    r"|-fprofile-arcs"
    r"|-fprofile-generate.*|-aux-info.*|-include-pch|-fuse-ld=.*|-fcompare-debug.*|-x"
    # Elsewhere for headers and libraries than the compiler said it looks.
    r"|--?sysroot.*|-isysroot.*|-iprefix.*|-iwithprefix.*|-imultilib.*|-no-sysroot-suffix|-target"
    r"|--target=.*|-m32|-mx32"
    r"|-stdlib=.*|--gcc-toolchain=.*|--gcc-install-dir=.*|-cxx-isystem.*|-I-"
    # For the assembler, the linker and the preprocessor: taken only as below.
    r"|-Xassembler|-Xlinker|-Xpreprocessor|-T.*"
)
_FOR_OTHERS = re.compile(r"-W[alp],.*", re.S)
_HARMLESS_FOR_OTHERS = re.compile(
    r"-Wa,(?:--noexecstack|-mbig-obj|--compress-debug-sections(?:=\w+)?|-march=[\w.+-]+"
    r"|-mtune=[\w.+-]+)"
    r"|-Wp,-[DU][^,@]+"
    r"|-Wl(?:,(?:--as-needed|--allow-shlib-undefined|--gc-sections|--whole-archive|--no-[a-z-]+"
    r"|--(?:start|end)-group|-B(?:static|dynamic|symbolic|symbolic-functions)|-O\d?|-E|-s|-S"
    r"|--strip-(?:all|debug)|--export-dynamic|--exclude-libs[,=][\w.+:-]+|--hash-style=\w+"
    r"|--build-id(?:=\w+)?"
    r"|--disable-new-dtags|--enable-new-dtags|-z,[\w=-]+|(?:-soname|-h)[,=][\w.+-]+"
    r"|-rpath(?:-link)?[,=][^,@]+"
    r"|-[lL][^,@]+|-v|--verbose|--sort-common|--relax))+"
)

# Forms that can name no relative path.
_ABSOLUTE = re.compile(
    r"-O\w*|-[DU]\S+|-W(?!l,|a,|p,)[\w=+-]*|-w|-std=[\w+]+|-g\w*|-m[\w=,.+-]+|-f[\w-]+(?:=[\w-]+)?"
    r"|-l[\w.+-]+"
    r"|-f(?:file|debug|macro)-prefix-map=\S+"  # compared with paths, and not opened
    r"|-pthread|-pipe|-rdynamic|-shared|-s|-v|-ansi|-pedantic(?:-errors)?|-nostdinc\+\+"
    r"|-(?:I|L|isystem|iquote|idirafter)/\S*|-Wl,(?:--as-needed|--no-as-needed|--no-undefined"
    r"|-z,\w+|--gc-sections"
    r"|-O\d|--strip-all|-s|--export-dynamic|-Bsymbolic|-rpath,/[^,]*|-rpath=/[^,]*)|/\S*"
)
_FOLDERS = ("-isystem", "-iquote", "-idirafter", "-I", "-L")
_TAKES_PATH = (*_FOLDERS, "-include", "-imacros")


def split(flags: str) -> list[str]:
    """Flags as they stand in a build.ninja, as the words that the program gets.
    Raises ValueError on open quotes."""
    return shell.words(flags)


def optimises(words: list[str]) -> bool:
    """Whether a compiler optimises with these flags: the last of ``-O`` counts."""
    return next((word for word in reversed(words) if word.startswith("-O")), "-O0") != "-O0"


def unkeyable(flags: str) -> str | None:
    """Why a result built with these flags cannot be keyed; None when it can."""
    if (reason := shell.acts_on(flags)) is not None:
        return reason
    return next((word for word in split(flags) if _reads_or_writes_more(word)), None)


def _reads_or_writes_more(word: str) -> bool:
    if _FOR_OTHERS.fullmatch(word):
        return not _HARMLESS_FOR_OTHERS.fullmatch(word)
    return _UNKEYABLE.fullmatch(word) is not None


def relative_paths(flags: str) -> bool:
    """Whether a flag may name a path relative to the directory in which the compiler runs."""
    try:
        words = split(flags)
    except ValueError:
        return True
    return any_relative(words)


def any_relative(words: list[str]) -> bool:
    """The same, of flags that are words already."""
    previous = ""
    for word in words:
        if previous in _TAKES_PATH:
            if not word.startswith("/"):
                return True
        elif word not in _TAKES_PATH and not _ABSOLUTE.fullmatch(word):
            return True
        previous = word
    return previous in _TAKES_PATH


def absolute(words: list[str], folder: str) -> list[str]:
    """Flags with the folders that they name as the compiler sees them from ``folder``.

    >>> absolute(["-O2", "-Isrc", "-isystem", "lib", "-I/a"], "/b")
    ['-O2', '-I/b/src', '-isystem', '/b/lib', '-I/a']
    """
    found: list[str] = []
    for word in words:
        if found and found[-1] in _FOLDERS:
            found.append(os.path.join(folder, word))
            continue
        option = next((one for one in _FOLDERS if word.startswith(one) and word != one), None)
        path = None if option is None else os.path.join(folder, word[len(option) :])
        found.append(word if path is None else f"{option}{path}")
    return found


_LIBRARY = re.compile(
    r"-l[\w.+-]+|-L\S+|/\S+\.(?:so|a|o)(?:\.\d+)*|-Wl,-rpath[,=]/[^,]*|-Wl,-rpath,\$ORIGIN\S*"
)


def plain_libraries(flags: list[str]) -> bool:
    """Whether linker flags only name libraries, which mean the same to every linker."""
    try:
        return all(_LIBRARY.fullmatch(word) for text in flags for word in split(text))
    except ValueError:
        return False


def include_folders(flags: str) -> list[str]:
    """The folders that flags add to the search for headers, in the compiler's order."""
    return folders(split(flags))


def folders(words: list[str]) -> list[str]:
    """The same, of flags that are words already."""
    return [folder for kept in lookups.by_option(words).values() for folder in kept]

"""Flags for units in which most of a caller's flags change nothing that a caller can tell.

That holds for the units that warmcc writes, and for sources that declare functions and define none.
With the flags that are left, precompiled headers and objects serve calls with many lists of flags.
How code is optimised is not among these: the binding's own is optimised always, as calls from
Python go through it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection

from warmcc.daemon.pch import flag_reduction
from warmcc.daemon.plan.binding import module_name
from warmcc.daemon.toolchain import comments, ninja
from warmcc.daemon.toolchain.flags import split

OPTIMISED = "-O2"  # for the casters, which are compiled without a precompiled header
# Of code generation alone: what is passed between objects stays as it is.
_FREE = re.compile(
    r"-g(?:gdb|dwarf(?:-\d)?)?\d?|-m(?:arch|tune|cpu)=[\w.+-]+|-mavx[\w.]*|-msse[\w.]*|-mfma|-mf16c"
    r"|-mbmi2?|-mpopcnt|-fopenmp|-f(?:no-)?(?:fast-math|math-errno|trapping-math|associative-math"
    r"|unsafe-math-optimizations|finite-math-only|signed-zeros|reciprocal-math|unroll-loops"
    r"|tree-vectorize|strict-aliasing|omit-frame-pointer|inline-functions)"
)
_STANDARD = re.compile(r"-std=(?:c|gnu)\+\+(?:17|20|2a|23|2b)")
# What may define something, or read another file; and words that not every standard knows.
_DEFINES = re.compile(
    r"[{}#=]|%:|\?\?|<%|\b(?:template|import|module|requires|concept|char8_t|asm|__asm__)\b"
    r"|\bconst(?:eval|init)\b|\bco_\w+"
)
# What may read another file, or look for headers elsewhere; a folder for headers is told otherwise
_READS = re.compile(
    r"-(?:include|imacros|iprefix|iwithprefix|isysroot|fplugin|B|Wp,|Xp|D$|U$)|--|@"
)
# Of a parameter
_DEFAULT = re.compile(r"""=\s*(?:\{\s*\}|"[^"\\\n]*"|[-+]?(?:[\w.:]|(?<=[eE])[-+])+)\s*(?=[,)])""")


def flags(cflags: str, *, warns: bool = False) -> str:
    """The flags without those of code generation and a second standard; without those of warnings,
    unless the source ``warns``. As they stand in a build.ninja.

    >>> flags("-DX -std=c++20 -O3 -march=native -Wall -std=c++17")
    '-DX -std=c++20'
    >>> flags("-fPIC -Ofast -g -O1")
    '-fPIC'
    """
    words = split(cflags)
    kept = [word for word in words if not _is_free(word, warns=warns)]
    known = [word for word in kept if _STANDARD.fullmatch(word)]
    for word in known[1:]:
        kept.reverse()
        kept.remove(word)
        kept.reverse()
    return cflags if kept == words else ninja.shell_words(kept)


def of_generated(cflags: str, toolkit: str | None, free: Collection[str] = ()) -> str:
    """The flags of units that warmcc writes: without words that are ``free``, and without the
    headers of a CUDA ``toolkit``, of which they include none, so that extensions with kernels and
    without share them.

    >>> of_generated("-DX -DN=2 -isystem /cuda/include -isystem /t/include -O3", "/cuda", {"-DN=2"})
    '-DX -isystem /t/include'
    """
    words = split(flags(cflags))
    pair = ["-isystem", f"{toolkit}/include"]
    places = [place for place in range(len(words)) if words[place : place + 2] == pair]
    kept = [
        word
        for at, word in enumerate(words)
        if at not in places and at - 1 not in places and word not in free
    ]
    return ninja.shell_words(kept) if kept != words else flags(cflags)


def macros(words: list[str]) -> dict[str, str]:
    """The words that define a macro, each another one, and the macro's name: they mean nothing to a
    unit of warmcc's if no header mentions that. None where a word may bring other headers.

    >>> macros(["-DN=64", "-DTORCH_X", "-DTWICE", "-UTWICE", "-O2", "-DM"])
    {'-DN=64': 'N', '-DM': 'M'}
    >>> macros(["-DN=64", "-include", "/mine.h"])
    {}
    """
    if any(map(_READS.match, words)):
        return {}
    times = Counter(match[1] for word in words if (match := flag_reduction.MACRO.fullmatch(word)))
    return {
        word: match[1]
        for word in words
        if (match := flag_reduction.PLAIN_MACRO.fullmatch(word)) and times[match[1]] == 1
    }


def _is_free(word: str, *, warns: bool) -> bool:
    if flag_reduction.is_warning(word):
        return not warns
    return word.startswith("-O") or _FREE.fullmatch(word) is not None


def only_declares(text: str, *, folders: bool) -> bool:
    r"""Whether a source declares functions and has no code of its own.
    ``folders``: whether there are any of the user's, where headers with the names of common
    ones may be.

    >>> only_declares("#include <torch/extension.h>\nat::Tensor f(at::Tensor x);", folders=True)
    True
    >>> only_declares("void f(double x = 1e-5, bool b = true);", folders=False)
    True
    >>> only_declares("int f() { return 1; }", folders=False)
    False
    """
    plain = comments.without_comments(text)
    own = module_name.without_common_includes(plain, folders=folders)
    return _DEFINES.search(_DEFAULT.sub("", own)) is None

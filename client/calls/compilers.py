"""Which compilers do the same work by another name, so that what is warm for one serves it."""

from __future__ import annotations

import os
import re
import shlex
import shutil

_HOST = ("-ccbin", "--compiler-bindir")


def for_cpp(program: str, usual: str) -> str:
    """A compiler's name for C++. setuptools compiles C++ with gcc, which does what g++ does for it;
    where that is the ``usual`` compiler, what is warm for this one serves it."""
    other = _as_cpp(program)
    if other == _real(usual):
        return usual
    return shlex.quote(other if os.path.exists(other) else program)


def is_nvccs(host: str) -> bool:
    """Whether nvcc would take a compiler for the host by itself: the gcc that is found first."""
    return bool(host) and _as_cpp(host) == _as_cpp("gcc")


def without_host(words: list[str]) -> list[str]:
    """nvcc's flags without a ``-ccbin`` that says what nvcc does anyway: torch adds it where ``CC``
    is set."""
    found: list[str] = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        pair = [word] if name not in _HOST or equals else [word, next(rest, "")]
        if name not in _HOST or not is_nvccs(value if equals else pair[1]):
            found += pair
    return found


def _as_cpp(program: str) -> str:
    folder, name = os.path.split(_real(program))
    return os.path.join(folder, re.sub(r"gcc(?=-[\d.]+$|$)", "g++", name))


def _real(program: str) -> str:
    return os.path.realpath(shutil.which(program) or program)

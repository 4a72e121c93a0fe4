"""Macros that flags define and no header of a prelude mentions: units with other ones share a
profile.

They are defined between the prelude and the unit, where they mean the same: no header in front has
the name in its text, nor in what is left of it when its macros are expanded, so none asks for it,
and none can define it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from warmcc.daemon.cuda.unit_text import mentions
from warmcc.daemon.cuda.warm.profile import CudaProfile
from warmcc.daemon.pch.flag_reduction import MACRO, PLAIN_MACRO
from warmcc.daemon.toolchain import nvcc_flags

_APART = {"-D", "-U", "--define-macro", "--undefine-macro"}  # their macro is the next word
_DEFINED = re.compile(r"#[ \t]*(?:define|undef)[ \t]+([A-Za-z_]\w*)", re.A)


def left_out(words: Iterable[str], text: str, mentioned: Iterable[str]) -> list[str]:
    """Those of nvcc's ``words`` that need not be a profile's: each defines a macro, once, which the
    unit's ``text`` does not define as well (that would be told), and which is not among those that
    headers are known to mention.

    >>> words = ["-DN=64", "-O3", "-DSEEN", "-DTWICE", "-DTWICE=2", "-D__x"]
    >>> left_out(words, "int n = N;", {"SEEN"})
    ['-DN=64']
    >>> left_out(["-Xcompiler", "-DN=64", "-O3"], "", ())  # the host compiler's
    []
    """
    words = list(words)
    if not _APART.isdisjoint(words):
        return []
    times = Counter(match[1] for word in words if (match := MACRO.fullmatch(word)))
    others = {*mentioned, *defined(text)}
    return [
        word
        for word, is_own in nvcc_flags.options(words)
        if is_own
        and (match := PLAIN_MACRO.fullmatch(word))
        and times[match[1]] == 1
        and match[1] not in others
    ]


def without_repeated(words: list[str]) -> list[str]:
    """nvcc's words without a macro's definition that stands again, where the macro has no other: a
    package may have those that torch adds as well.

    >>> without_repeated(["-DA", "-DB", "-Xcompiler", "-DA", "-DA", "-DB=1"])
    ['-DA', '-DB', '-Xcompiler', '-DA', '-DB=1']
    """
    if not _APART.isdisjoint(words):
        return words
    ways = Counter(match[1] for word in set(words) if (match := MACRO.fullmatch(word)))
    kept: list[str] = []
    known: set[str] = set()
    for word, is_own in nvcc_flags.options(words):
        match = MACRO.fullmatch(word) if is_own else None
        if match is None or word not in known or ways[match[1]] > 1:
            kept.append(word)
        known |= {word} if is_own else set()
    return kept


def defined(text: str) -> set[str]:
    """The macros that a text defines, or undefines."""
    return set(_DEFINED.findall(text))


def names(words: Iterable[str]) -> set[str]:
    """The macros that words define."""
    return {match[1] for word in words if (match := PLAIN_MACRO.fullmatch(word))}


def mentioned(found: set[str], profile: CudaProfile) -> set[str]:
    """Those of the names that a header of a profile's preludes mentions; if there are any, the text
    of its host's must be there. Each is searched for once. Raises OSError.
    """
    if not found:
        return set()
    assert profile.host is not None
    theirs: set[str] = set()
    for level in profile.levels:
        if new := found - level.unmentioned:
            now = mentions.mentioned(
                new, mentions.of_host(profile.host) | mentions.of_level(level), whole=True
            )
            level.unmentioned |= new - now
            theirs |= now
    return theirs


def definitions(words: Iterable[str], profile: Iterable[str]) -> str:
    r"""The lines that define what is among a unit's ``words``, and was left out of its
    ``profile``'s.

    >>> definitions(["-DN=64", "-DFLAG", "-O3", "-DTORCH_EXTENSION_NAME=x"], ["-O3"])
    '#define N 64\n#define FLAG 1\n'
    """
    known = set(profile)
    found = (PLAIN_MACRO.fullmatch(word) for word in words if word not in known)
    return "".join(
        f"#define {match[1]} {'1' if match[2] is None else match[2]}\n" for match in found if match
    )

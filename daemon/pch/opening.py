"""The opening of a unit: the includes that it begins with, followed into the user's own headers.

A precompiled header moves torch's headers to the front of a unit, past all that stands before them.
So the walk goes on only over what cannot tell whether torch's headers were read already, and which
they cannot tell was read:

- comments, blank lines and ``#pragma once``, which define nothing;
- macros, also those of include guards: the unit is compiled with all of them defined on the command
  line, where g++ itself refuses a precompiled header in which one is mentioned, and they are
  undefined again behind it. A name that the compiler, a flag or a system header may have defined
  ends the walk: it would not be as it was;
- conditions on one name of which it is certain whether it is defined: by a flag, by the unit's own
  text, or nowhere, as nothing of the system's was read yet; torch's headers may not mention it;
- any conditions in whose branches nothing but macros is defined, if torch's headers mention none of
  the names in them;
- ``<Python.h>``, when it stands in front of all others: it is precompiled with them;
- headers of ``NEUTRAL``: standard ones, which by the standard may come in any order and test
  reserved macros only, and some that were tried in both orders. Behind one of them only the headers
  of ``MOVABLE`` may be precompiled, with which a test tries them all. Other headers of torch ask
  what the standard library has defined so far (``c10/util/bit_cast.h``), or read ``Python.h``
  first, which sets feature macros (``pybind11/pybind11.h``). Those macros make more of
  ``<float.h>``, so that nothing with ``Python.h`` is precompiled from behind it.

Everything else ends the walk: any other condition, code, ``#undef``, a header that a macro names,
any other system header. Not in the list, because order may matter: ``<complex.h>`` (macro ``I``),
``<inttypes.h>`` and ``<cinttypes>`` (older glibc asks for a macro of the includer's),
``<Python.h>`` (feature macros) behind another header, what is not the C++ or C library's.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass

from warmcc.daemon.pch import directives, leading_includes
from warmcc.daemon.pch.directives import Ended
from warmcc.daemon.pch.neutral_headers import BY_PYTHON, MOVABLE, NEUTRAL, OF_CUDA, WITH_PYTHON
from warmcc.daemon.toolchain import Toolchain, lookups

_FILES = 64
_BYTES = 1 << 20
_HEAD = 1 << 16  # of one file

_SEEN_ELSEWHERE = (
    "-nostdinc", "-undef", "-traditional", "-finput-charset", "-fdirectives-only", "-remap",
    "--include",
)  # fmt: skip

_GUARD = re.compile(r"\w*(?:_H|_HH|_HPP|_HXX|_CUH|_INC|INCLUDED|_GUARD)_*", re.A | re.I)
_RESERVED = re.compile(r"_|\w*__", re.A)
_NO_NAMES = frozenset(
    re.findall(r"\w+", "defined and and_eq bitand bitor compl not not_eq or or_eq xor xor_eq")
)
# By no compiler or header of this system
_NEVER = frozenset(
    re.findall(r"\w+", "_WIN32 _WIN64 WIN32 _MSC_VER __APPLE__ __CUDACC__ __HIPCC__")
)
_PYTHON = "Python.h"
# By g++, with names that do not say so
_PREDEFINED = frozenset(("linux", "unix", "i386", "_STDC_PREDEF_H"))


@dataclass(frozen=True)
class Opening:
    """The includes that a unit begins with.
    ``headers`` are those that may be precompiled; ``macros`` for each the unit's own that are
    defined in front of it, None where nothing stands there but the headers before it. ``why``
    the walk ended before it met one of torch's."""

    headers: tuple[str, ...] = ()
    macros: leading_includes.Macros = ()
    why: str = ""


@dataclass(frozen=True)
class HeaderSearch:
    """How g++ finds the headers of a unit.
    ``quoted`` are folders for quotes only, ``angled`` for both; ``compilers``, ``torchs`` and
    ``cudas`` (real paths) those of the compiler's, torch's and CUDA's own; ``owned`` says of a
    file whether it is of the toolchain. ``words`` are the flags."""

    quoted: tuple[str, ...]
    angled: tuple[str, ...]
    compilers: frozenset[str]
    torchs: frozenset[str]
    cudas: str
    owned: Callable[[str], bool]
    words: tuple[str, ...]

    @classmethod
    def of(
        cls, words: list[str], toolchain: Toolchain, variables: dict[str, str], home: str | None,
        toolkit: str | None,
    ) -> HeaderSearch:  # fmt: skip
        """What a unit's flags and variables come to.
        ``home`` is a folder for quotes that the flags do not name, ``toolkit`` where CUDA
        is."""
        quoted = lookups.by_option(words)["-iquote"]
        folders = lookups.header_search(words, toolchain.include_folders, variables)
        include = os.path.join(toolchain.torch_dir, "include")
        return cls(
            (*filter(None, [home]), *quoted),
            tuple(folders[len(quoted) :]),
            frozenset(map(os.path.realpath, toolchain.include_folders)),
            frozenset(
                map(os.path.realpath, (include, os.path.join(include, "torch/csrc/api/include")))
            ),
            os.path.realpath(os.path.join(toolkit, "include")) if toolkit is not None else "",
            toolchain.owns,
            tuple(words),
        )

    def find(self, name: str, folder: str, *, quoted: bool) -> tuple[str, str] | None:
        """The folder in which a header is found, and its path; None if there is no plain file."""
        for place in (folder, *self.quoted, *self.angled) if quoted else self.angled:
            path = os.path.join(place, name)
            if os.path.isfile(path):
                return place, path
            if os.path.lexists(path) and not os.path.isdir(path):
                return None
        return None


class _Walk:
    def __init__(self, search: HeaderSearch) -> None:
        self._search = search
        self._given, self._defined = directives.by_flags(search.words)
        self._left = _BYTES
        self._files = 0
        self._open: set[str] = set()
        # The text of each file with #pragma once → which file it is
        self._once: dict[str, str] = {}
        self._skipped: set[str] = set()  # files that are empty when they are included again
        self._macros: set[str] = set()
        self._absent: set[str] = set()  # those that are asked for and not defined in the text
        self._maybe: set[str] = set()  # of the macros, those defined in one branch
        self._system = False  # a system header was met
        self._without_python = False  # one was that Python.h in front of it would change
        self._passed = False  # anything but torch's headers was
        self.headers: list[str] = []
        self.macros: list[frozenset[str] | None] = []

    def text(self, text: str, folder: str, identity: str = "") -> None:
        """Go through a file. Raises Ended."""
        if "??/" in text:
            raise Ended("a trigraph stands")
        if (
            directives.LONE_CR.search(text) or "\0" in text[:-1]
        ):  # g++ ends a line at the first, and skips the other
            raise Ended("a control character stands")
        at, guarded, first = (1 if text.startswith("\ufeff") else 0), False, True
        branches = 0  # of conditions, in which this is
        while True:
            at = self._blank(text, at)
            if at == len(text):
                if guarded or branches:
                    raise Ended("an #if without an end stands")
                return
            if match := directives.ONCE.match(text, at):
                if self._once.setdefault(text, identity) != identity:
                    raise Ended("a header stands twice, as two files,")  # g++ reads one of them
                self._skipped.add(identity)
            elif match := directives.INCLUDE.match(text, at):
                self._include(match[1] or match[2], folder, quoted=match[1] is None)
                first = False
            elif first and (match := self._guard(text, at)):
                guarded, first = True, False
            elif match := directives.DEFINE.match(text, at):
                self._define(match[1])
                first = False
            elif choice := directives.only_defines(text, at):
                self._choose(choice)
                at, first = choice.end, False
                continue
            elif match := directives.IF.match(text, at):
                first = False
                if self._is_defined(match[2]) != bool(match[1]):
                    branches += 1
                else:
                    match = directives.branch(text, match.end(), to_end=False)
                    branches += match[1] == "else"
            elif branches and directives.OTHER_BRANCH.match(text, at):
                match = directives.branch(text, at, to_end=True)
                branches -= 1
            elif branches and (match := directives.ENDIF.match(text, at)):
                branches -= 1
            elif guarded and (match := directives.ENDIF.match(text, at)):
                if self._blank(text, match.end()) != len(text):
                    raise Ended("something behind an include guard stands")
                self._skipped.add(identity)
                return
            else:
                directive = directives.DIRECTIVE.match(text, at)
                raise Ended(f"{directive[0] if directive else 'code'} stands")
            at = match.end()

    @staticmethod
    def _blank(text: str, at: int) -> int:
        match = directives.BLANK.match(text, at)
        assert match is not None
        return match.end()

    def _guard(self, text: str, at: int) -> re.Match[str] | None:
        """The two lines that begin an include guard."""
        if (test := directives.IFNDEF.match(text, at)) is None:
            return None
        define = directives.DEFINE.match(text, self._blank(text, test.end()))
        if define is None or define[1] != test[1] or define[2].startswith("("):
            return None
        name = test[1]
        unclear = (
            name in self._macros
            or name in self._absent | self._maybe
            or not _GUARD.fullmatch(name)
            or (_RESERVED.match(name) and self._system)
        )
        if unclear or name in self._given or name in _PREDEFINED:
            raise Ended("an include guard that may be defined already stands")
        self._macros.add(name)
        self._passed = True
        return define

    def _choose(self, choice: directives.Choice) -> None:
        """Pass conditions in which macros are defined, or not. Raises Ended."""
        asked = {name for name in choice.asked if not directives.PREDEFINED.fullmatch(name)}
        if any(_RESERVED.match(name) and name not in _NEVER for name in asked):
            raise Ended("a condition on a reserved name stands")
        for name in choice.defined:
            self._define(name)
        self._maybe |= choice.defined
        self._absent |= asked - self._given - _NO_NAMES - _NEVER - self._macros
        self._passed = True

    def _is_defined(self, name: str) -> bool:
        """Whether a macro is defined here, and stays so with torch's headers in front.
        Raises Ended where that is not certain."""
        if name in self._maybe:
            raise Ended("a condition on a name that may be defined stands")
        if name in self._macros or name in self._defined:
            return True
        if name in _NEVER and name not in self._given:
            return False
        if self._system or self.headers or _RESERVED.match(name) or name in _PREDEFINED:
            raise Ended("a condition on a name that a header may have defined stands")
        if name in self._given or name in _NO_NAMES:
            raise Ended("a condition on a name that a flag is about stands")
        self._absent.add(name)
        self._passed = True
        return False

    def _define(self, name: str) -> None:
        if _RESERVED.match(name) or name in self._given or name in _PREDEFINED or name in _NO_NAMES:
            raise Ended("a #define of a name that may be defined already stands")
        self._absent.discard(name)
        self._maybe.discard(name)
        self._macros.add(name)
        self._passed = True

    def _include(self, name: str, folder: str, *, quoted: bool) -> None:
        found = self._search.find(name, folder, quoted=quoted)
        if found is None or "\ufffd" in name or os.path.lexists(found[1] + ".gch"):
            raise Ended("an include that is not found stands")
        place, path = found
        real = os.path.realpath(path)
        is_first = name == _PYTHON and not (self._system or self.headers)
        is_torchs = leading_includes.is_heavy((name,)) and (
            os.path.realpath(place) in self._search.torchs
        )
        if is_torchs or (is_first and self._search.owned(real)):
            if (
                os.path.normpath(name) != name
                or (self._system and MOVABLE.isdisjoint((*self.headers, name)))
                or (self._without_python and name not in MOVABLE - WITH_PYTHON)
            ):
                raise Ended(f"<{name}> behind a system header stands")
            if name not in self.headers:
                self.headers.append(name)
                self.macros.append(frozenset(self._macros | self._absent) if self._passed else None)
            return
        self._passed = True
        if self._is_neutral(name, place):
            self._system = True
            if name in BY_PYTHON and WITH_PYTHON.isdisjoint(self.headers):
                self._without_python = True
        elif self._search.owned(path) or self._search.owned(real) or os.path.isabs(name):
            raise Ended(f"<{name}> stands")
        else:
            self._own(path, real)

    def _is_neutral(self, name: str, place: str) -> bool:
        real = os.path.realpath(place)
        return (name in NEUTRAL and real in self._search.compilers) or (
            name in OF_CUDA and real == self._search.cudas
        )

    def _own(self, path: str, real: str) -> None:
        if real in self._skipped:
            return
        self._files += 1
        text = head(path, min(_HEAD, self._left))
        self._left -= len(text)
        if real in self._open or self._files > _FILES or self._left <= 0:
            raise Ended("an own header that is too much stands")
        self._open.add(real)
        self.text(text, os.path.dirname(path), real)
        self._open.discard(real)


def of(text: str, folder: str, search: HeaderSearch | None) -> Opening:
    """The opening of a source in ``folder``.
    Without ``search``, and where that gives more of torch's headers, it is the run of includes
    in angle brackets, all of which a precompiled header must then have, in their order."""
    plain = leading_includes.leading(text)
    if search is None or any(word.startswith(_SEEN_ELSEWHERE) for word in search.words):
        return Opening(plain)
    if not all(map(os.path.isabs, (*search.quoted, *search.angled, folder))):
        return Opening(plain)
    walk, why = _Walk(search), ""
    try:
        walk.text(text, folder)
    except Ended as ended:
        why = f"{ended} in front of torch's headers"
    heavy = [name for name in plain if leading_includes.is_heavy((name,))]
    found = [name for name in walk.headers if leading_includes.is_heavy((name,))]
    if len(found) < max(1, len(heavy)):
        return Opening(plain, (), "" if heavy else why)
    return Opening(tuple(walk.headers), tuple(walk.macros))


def head(path: str, limit: int = _HEAD) -> str:
    """Whole lines from the beginning of a regular file.
    Of any other, and of one that cannot be read, only what ends every walk: the compiler will
    complain about it. Does not block: a path may lead to a pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return "\0"
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return "\0"
        data = file.read(limit + 1)
    if len(data) > limit:
        data = data[: data.rfind(b"\n", 0, limit) + 1] + b"\0"  # which ends every walk
    return data.decode("utf-8", "replace")

"""The opening of a unit: the includes that it begins with, followed into the user's own headers.

A precompiled header moves torch's headers to the front of a unit, past all that stands before them.
So the walk goes on only over what cannot tell whether torch's headers were read already, and which
they cannot tell was read:

- comments, blank lines and ``#pragma once``, which define nothing;
- macros, also those of include guards: the unit is compiled with all of them defined on the command
  line, where g++ itself refuses a precompiled header in which one is mentioned, and they are
  undefined again behind it. A name that the compiler, a flag or a system header may have defined
  ends the walk: it would not be as it was;
- headers of ``NEUTRAL``: standard ones, which by the standard may come in any order and test
  reserved macros only, and some that were tried in both orders. Behind one of them only the headers
  of ``MOVABLE`` may be precompiled, with which a test tries them all. Other headers of torch ask
  what the standard library has defined so far (``c10/util/bit_cast.h``), or read ``Python.h``
  first, which sets feature macros (``pybind11/pybind11.h``).

Everything else ends the walk: a condition, code, ``#undef``, a header that a macro names, any other
system header. Not in the list, because order may matter: ``<complex.h>`` (the macro ``I``),
``<inttypes.h>`` and ``<cinttypes>`` (older glibc asks for a macro of the includer's),
``<Python.h>`` (feature macros), what is not the C++ or C library's.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from warmcc.daemon.pch import leading_includes
from warmcc.daemon.toolchain import Toolchain, lookups

_FILES = 64
_BYTES = 1 << 20
_HEAD = 1 << 16  # of one file

NEUTRAL = frozenset(
    re.findall(
        r"\S+",
        """
        algorithm any array atomic bit bitset cassert cctype cerrno cfloat charconv chrono climits
        clocale cmath compare concepts condition_variable cstdarg cstddef cstdint cstdio cstdlib
        cstring ctime deque exception filesystem forward_list fstream functional future
        initializer_list iomanip ios iosfwd iostream istream iterator limits list locale map memory
        mutex new numeric optional ostream queue random ratio regex set shared_mutex span sstream
        stack stdexcept streambuf string string_view system_error thread tuple type_traits typeindex
        typeinfo unordered_map unordered_set utility valarray variant vector complex
        assert.h ctype.h errno.h float.h limits.h math.h stdarg.h stddef.h stdint.h stdio.h stdlib.h
        string.h time.h
        pthread.h unistd.h sys/mman.h sys/stat.h sys/time.h sys/types.h omp.h cpuid.h
        immintrin.h x86intrin.h xmmintrin.h emmintrin.h pmmintrin.h tmmintrin.h smmintrin.h
        nmmintrin.h
        """,
    )
)
MOVABLE = frozenset(
    (
        "torch/extension.h", "torch/torch.h", "torch/script.h", "torch/library.h", "ATen/ATen.h",
        "c10/macros/Macros.h",
    )
)  # fmt: skip
OF_CUDA = frozenset(("cuda_runtime.h", "cuda_runtime_api.h"))
_SEEN_ELSEWHERE = (
    "-nostdinc", "-undef", "-traditional", "-finput-charset", "-fdirectives-only", "-remap",
    "--include",
)  # fmt: skip

_TO_END = r"//(?:[^\n\\]|\\(?![ \t\v\f\r]*(?:\n|\Z)))*(?:\n|\Z)"
_BLANK = re.compile(
    rf"(?:[ \t\v\f\r\n]|{_TO_END}|/\*(?:[^*\\]|\\(?![ \t\v\f\r]*\n)|\*(?![/\\]))*\*/)*"
)
_TAIL = rf"[ \t]*(?:/\*(?:[^*\\\n]|\*(?![/\\]))*\*/[ \t]*)?(?:{_TO_END}|\r?\n|\Z)"
_INCLUDE = re.compile(rf"#[ \t]*include[ \t]*(?:<([^<>\\\n]+)>|\"([^\"\\\n]+)\"){_TAIL}")
_ONCE = re.compile(rf"#[ \t]*pragma[ \t]+once{_TAIL}")
_IFNDEF = re.compile(rf"#[ \t]*ifndef[ \t]+([A-Za-z_]\w*){_TAIL}", re.A)
_DEFINE = re.compile(rf"#[ \t]*define[ \t]+([A-Za-z_]\w*)(?!\w)([^\n\\\"'/]*?){_TAIL}", re.A)
_ENDIF = re.compile(rf"#[ \t]*endif{_TAIL}")
_LONE_CR = re.compile(r"\r(?!\n)")
_DIRECTIVE = re.compile(r"#[ \t]*[a-z]*")

_MACRO_FLAG = re.compile(r"(?:-Wp,)?-[DU]([A-Za-z_]\w*)", re.A)
_GUARD = re.compile(r"\w*(?:_H|_HH|_HPP|_HXX|_CUH|_INC|INCLUDED|_GUARD)_*", re.A | re.I)
_RESERVED = re.compile(r"_|\w*__", re.A)
_NO_NAMES = frozenset(
    re.findall(r"\w+", "defined and and_eq bitand bitor compl not not_eq or or_eq xor xor_eq")
)
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


class _Ended(Exception):
    """The walk met something that may not be passed."""


class _Walk:
    def __init__(self, search: HeaderSearch) -> None:
        self._search = search
        self._given = {match[1] for word in search.words if (match := _MACRO_FLAG.match(word))}
        self._given |= {
            after.partition("=")[0]
            for word, after in pairwise(search.words)
            if word in ("-D", "-U")
        }
        self._left = _BYTES
        self._files = 0
        self._open: set[str] = set()
        # The text of each file with #pragma once → which file it is
        self._once: dict[str, str] = {}
        self._skipped: set[str] = set()  # files that are empty when they are included again
        self._macros: set[str] = set()
        self._system = False  # a system header was met
        self._passed = False  # anything but torch's headers was
        self.headers: list[str] = []
        self.macros: list[frozenset[str] | None] = []

    def text(self, text: str, folder: str, identity: str = "") -> None:
        """Go through a file. Raises _Ended."""
        if "??/" in text:
            raise _Ended("a trigraph stands")
        if (
            _LONE_CR.search(text) or "\0" in text[:-1]
        ):  # g++ ends a line at the first, and skips the other
            raise _Ended("a control character stands")
        at, guarded, first = (1 if text.startswith("\ufeff") else 0), False, True
        while True:
            at = self._blank(text, at)
            if at == len(text):
                if guarded:
                    raise _Ended("an #if without an end stands")
                return
            if match := _ONCE.match(text, at):
                if self._once.setdefault(text, identity) != identity:
                    raise _Ended("a header stands twice, as two files,")  # g++ reads one of them
                self._skipped.add(identity)
            elif match := _INCLUDE.match(text, at):
                self._include(match[1] or match[2], folder, quoted=match[1] is None)
                first = False
            elif first and (match := self._guard(text, at)):
                guarded, first = True, False
            elif match := _DEFINE.match(text, at):
                self._define(match[1])
                first = False
            elif guarded and (match := _ENDIF.match(text, at)):
                if self._blank(text, match.end()) != len(text):
                    raise _Ended("something behind an include guard stands")
                self._skipped.add(identity)
                return
            else:
                directive = _DIRECTIVE.match(text, at)
                raise _Ended(f"{directive[0] if directive else 'code'} stands")
            at = match.end()

    @staticmethod
    def _blank(text: str, at: int) -> int:
        match = _BLANK.match(text, at)
        assert match is not None
        return match.end()

    def _guard(self, text: str, at: int) -> re.Match[str] | None:
        """The two lines that begin an include guard."""
        if (test := _IFNDEF.match(text, at)) is None:
            return None
        define = _DEFINE.match(text, self._blank(text, test.end()))
        if define is None or define[1] != test[1] or define[2].startswith("("):
            return None
        name = test[1]
        unclear = (
            name in self._macros
            or not _GUARD.fullmatch(name)
            or (_RESERVED.match(name) and self._system)
        )
        if unclear or name in self._given or name in _PREDEFINED:
            raise _Ended("an include guard that may be defined already stands")
        self._macros.add(name)
        self._passed = True
        return define

    def _define(self, name: str) -> None:
        if _RESERVED.match(name) or name in self._given or name in _PREDEFINED or name in _NO_NAMES:
            raise _Ended("a #define of a name that may be defined already stands")
        self._macros.add(name)
        self._passed = True

    def _include(self, name: str, folder: str, *, quoted: bool) -> None:
        found = self._search.find(name, folder, quoted=quoted)
        if found is None or "\ufffd" in name or os.path.lexists(found[1] + ".gch"):
            raise _Ended("an include that is not found stands")
        place, path = found
        real = os.path.realpath(path)
        if leading_includes.is_heavy((name,)) and os.path.realpath(place) in self._search.torchs:
            if os.path.normpath(name) != name or (
                self._system and MOVABLE.isdisjoint((*self.headers, name))
            ):
                raise _Ended(f"<{name}> behind a system header stands")
            if name not in self.headers:
                self.headers.append(name)
                self.macros.append(frozenset(self._macros) if self._passed else None)
            return
        self._passed = True
        if self._is_neutral(name, place):
            self._system = True
        elif self._search.owned(path) or self._search.owned(real) or os.path.isabs(name):
            raise _Ended(f"<{name}> stands")
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
            raise _Ended("an own header that is too much stands")
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
    except _Ended as ended:
        why = f"{ended} in front of torch's headers"
    if len(walk.headers) < max(1, sum(leading_includes.is_heavy((name,)) for name in plain)):
        return Opening(
            plain, (), "" if any(leading_includes.is_heavy((name,)) for name in plain) else why
        )
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

"""A unit's own text: its source with the headers of the user's in place of the lines that include
them, each once, as far as they are found without the compiler. Comments, and what stands there for
ROCm or for an old torch alone, are left out.

What warm state may serve a unit is judged by this text (``eligibility.py``); it is never compiled.
"""

from __future__ import annotations

import filecmp
import os
import re
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from warmcc.daemon.build.work import Work
from warmcc.daemon.cuda.unit_text import eligibility
from warmcc.daemon.pch import opening
from warmcc.daemon.plan import requested
from warmcc.daemon.plan.ways import Unit
from warmcc.daemon.toolchain import Toolchain, comments, lookups
from warmcc.request import Request

_AS_CPP = 0.4
_FILES, _BYTES = 64, 1 << 20  # headers that are looked into, and how far
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*(?:<([^>\n]+)>|\"([^\"\n]+)\")[^\n]*$", re.M)
_ANY_INCLUDE = re.compile(r"^[ \t]*#[ \t]*(?:include|include_next|import)\b[^\n]*", re.M)


_CONDITION = re.compile(r"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b([^\n]*)")
_SPLICED = re.compile(r"^[ \t]*#[ \t]*(?:if|el|endif)[^\n]*\\\n", re.M)
_ROCM = re.compile(
    r"ifdef USE_ROCM|(?P<no>ifndef USE_ROCM|if ! *defined *(?:\( *USE_ROCM *\)|USE_ROCM))"
    r"|if defined *(?:\( *USE_ROCM *\)|USE_ROCM)"
)
# Headers behind which TORCH_CHECK is there, and what packages that also build with older ones say
DEFINES_CHECK = frozenset(
    (
        "torch/extension.h", "torch/torch.h", "torch/all.h", "torch/types.h", "torch/python.h",
        "ATen/ATen.h", "ATen/cuda/CUDAContext.h", "c10/cuda/CUDAGuard.h", "c10/util/Exception.h",
    )
)  # fmt: skip
_FALLBACK = re.compile(
    r"^[ \t]*#[ \t]*ifndef[ \t]+TORCH_CHECK[ \t]*\n\s*#[ \t]*define[ \t]+TORCH_CHECK\b[^\n\\]*\n"
    r"\s*#[ \t]*endif\b[^\n]*\n?", re.M
)  # fmt: skip


@dataclass(frozen=True)
class OwnText:
    """``text`` as described; ``why_partial`` where it is not the whole of it."""

    text: str
    why_partial: str = ""

    @property
    def weight(self) -> float:
        """What it costs where nothing is warm (``eligibility.weight``)."""
        return eligibility.weight(self.text)

    @property
    def is_short(self) -> bool:
        """Whether nvcc takes less time for it than a C++ compiler takes for all of torch's headers
        (27 s)."""
        return self.weight < _AS_CPP


@dataclass
class _Reading:
    searched: list[str]
    theirs: list[str]
    known: set[str] = field(default_factory=set)
    why_partial: str = ""

    def expanded(self, text: str, folder: str) -> str:
        """A file's text with the headers in place that are the user's."""
        text = _for_cuda(text)
        parts: list[str] = []
        at = 0
        for match in _ANY_INCLUDE.finditer(text):
            named = _INCLUDE.fullmatch(match[0])
            if named is None:
                self.why_partial = f"{match[0].strip()[:80]} may be of any header"
                continue
            if (
                own := self._own(named[1] or named[2], folder if named[1] is None else None)
            ) is not None:
                parts += [text[at : match.start()], own]
                at = match.end()
        return "".join([*parts, text[at:]])

    def _own(self, name: str, beside: str | None) -> str | None:
        """The text of a header of the user's; None for others, nothing for one that is there."""
        places = [beside, *self.searched] if beside is not None else self.searched
        found = (os.path.join(place, name) for place in places)
        path = next(filter(os.path.isfile, found), None)
        if path is None or any(_same(path, os.path.join(one, name)) for one in self.theirs):
            return None
        real = os.path.realpath(path)
        if real in self.known:
            return ""
        self.known.add(real)
        text = opening.head(path, _BYTES)
        if text.endswith("\0") or len(self.known) > _FILES:
            self.why_partial = "more headers of its own than are looked into"
            return ""
        return f"\n{self.expanded(text, os.path.dirname(path))}\n"


def _same(path: str, other: str) -> bool:
    """Whether another file is there, and is the same."""
    try:
        return filecmp.cmp(path, other, shallow=False)
    except OSError:
        return False


def _for_cuda(text: str) -> str:
    r"""A file's text without comments and without what is compiled for ROCm alone, where that is
    certain.

    >>> _for_cuda("#ifdef USE_ROCM  // no\nint a;\n#else\nint b;\n#endif\n#if 1\nint c;\n#endif\n")
    '#if 0\n#else\nint b;\n#endif\n#if 1\nint c;\n#endif\n'
    """
    plain = comments.without_comments(text)
    if "USE_ROCM" not in plain or "/*" in plain or ("\\\n" in plain and _SPLICED.search(plain)):
        return plain
    kept: list[str] = []
    open_conditions: list[bool | None] = []  # whether lines are kept; None where it is not known
    for line in plain.splitlines(keepends=True):
        if (match := _CONDITION.match(line)) is None:
            if False not in open_conditions:
                kept.append(line)
            continue
        word = match[1]
        if word in ("if", "ifdef", "ifndef"):
            known = _ROCM.fullmatch(f"{word} {match[2].strip()}")
            open_conditions.append(None if known is None else bool(known["no"]))
            line = line if known is None else f"#if {int(bool(known['no']))}\n"
        elif not open_conditions:
            return plain
        elif word == "endif":
            open_conditions.pop()
        elif (last := open_conditions[-1]) is not None:
            open_conditions[-1] = not last if word == "else" else None
        kept.append(line)
    return plain if open_conditions else "".join(kept)


def _for_this_torch(text: str) -> str:
    r"""A text, with its comments gone, without what it would put in TORCH_CHECK's place, where a
    header that has it is certainly read before.

    >>> _for_this_torch("#include <c10/util/Exception.h>\n" + (fallback := '''
    ... #ifndef TORCH_CHECK
    ... #define TORCH_CHECK AT_CHECK
    ... #endif
    ... '''))
    '#include <c10/util/Exception.h>\n\n'
    >>> _for_this_torch(fallback) == fallback
    True
    """
    if _FALLBACK.search(text) is None or _SPLICED.search(text):
        return text
    depth = at = 0
    for line in text.splitlines(keepends=True):
        at += len(line)
        if (match := _CONDITION.match(line)) is not None:
            depth += {"endif": -1, "else": 0, "elif": 0}.get(match[1], 1)
        elif (
            not depth
            and (match := _INCLUDE.match(line))
            and (match[1] or match[2]) in DEFINES_CHECK
        ):
            return text[:at] + _FALLBACK.sub("", text[at:])
    return text


def alone(text: str) -> OwnText:
    """That of a source whose headers must not be looked into."""
    named = _ANY_INCLUDE.findall(text)
    quoted = any('"' in line or "<" not in line for line in named)
    partial = "headers of its own are not looked into" if quoted else ""
    return OwnText(_for_this_torch(text), partial)


def of(text: str, folder: str, searched: list[str], theirs: list[str]) -> OwnText:
    """That of a source in ``folder``, with headers looked for beside whoever includes them and in
    the folders of ``searched``. What is the same in a folder of ``theirs`` is the toolchain's."""
    reading = _Reading(searched, theirs)
    found = _for_this_torch(reading.expanded(text, folder))
    return OwnText(found, reading.why_partial)


def of_unit(work: Work, unit: Unit) -> OwnText:
    """That of a unit, as far as the daemon may read it; a source that cannot be read is nvcc's to
    complain about."""
    text, folder = unit.text, str(work.tree)
    if text is None:
        folder = os.path.dirname(unit.source)
        try:
            text = Path(unit.source).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return OwnText("")
    if not work.follows:
        return alone(text)
    toolchain = work.toolchain
    theirs = [os.path.join(toolchain.torch_dir, "include"), *toolchain.include_folders]
    if toolchain.cuda is not None:
        theirs += chain(*toolchain.cuda.include_folders)
    return of(text, folder, searched(work.request, toolchain), theirs)


def searched(request: Request, toolchain: Toolchain) -> list[str]:
    """The folders in which the user's own headers are looked for, beside the includer's."""
    home = requested.home(request)
    named = [*([home] if home is not None else []), *eligibility.users_folders(request)]
    named += lookups.of_variables(request.environment)
    return [one for one in named if not _is_no_users(one, toolchain)]


def _is_no_users(folder: str, toolchain: Toolchain) -> bool:
    """Whether a folder is the toolchain's, or of one of CUDA's libraries that come as packages
    beside torch: where the toolkit lacks these, callers name their folders."""
    real = os.path.realpath(folder)
    packages = os.path.dirname(os.path.realpath(toolchain.torch_dir))
    return toolchain.owns(real) or real.startswith(f"{packages}/nvidia/")

"""The preprocessor's lines over which the walk through an opening goes (``opening.py``).

Each pattern takes its line with the end of it, comments included, where it is certain what g++
makes of it; what none of them takes ends the walk.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise


class Ended(Exception):
    """The walk met something that may not be passed."""


_TO_END = r"//(?:[^\n\\]|\\(?![ \t\v\f\r]*(?:\n|\Z)))*(?:\n|\Z)"
BLANK = re.compile(
    rf"(?:[ \t\v\f\r\n]|{_TO_END}|/\*(?:[^*\\]|\\(?![ \t\v\f\r]*\n)|\*(?![/\\]))*\*/)*"
)
_TAIL = rf"[ \t]*(?:/\*(?:[^*\\\n]|\*(?![/\\]))*\*/[ \t]*)?(?:{_TO_END}|\r?\n|\Z)"
INCLUDE = re.compile(rf"#[ \t]*include[ \t]*(?:<([^<>\\\n]+)>|\"([^\"\\\n]+)\"){_TAIL}")
ONCE = re.compile(rf"#[ \t]*pragma[ \t]+once{_TAIL}")
IFNDEF = re.compile(rf"#[ \t]*ifndef[ \t]+([A-Za-z_]\w*){_TAIL}", re.A)
DEFINE = re.compile(rf"#[ \t]*define[ \t]+([A-Za-z_]\w*)(?!\w)([^\n\\\"'/]*?){_TAIL}", re.A)
ENDIF = re.compile(rf"#[ \t]*endif{_TAIL}")
IF = re.compile(
    r"#[ \t]*(?:ifdef[ \t]+|if[ \t]+defined[ \t]*\(?[ \t]*"
    r"|(ifndef[ \t]+|if[ \t]*![ \t]*defined[ \t]*\(?[ \t]*))"
    rf"([A-Za-z_]\w*)[ \t]*\)?{_TAIL}",
    re.A,
)
OTHER_BRANCH = re.compile(r"#[ \t]*(?:else|elif)\b")
_NESTS = re.compile(r"^[ \t]*#[ \t]*(if|ifdef|ifndef|else|elif|endif)\b", re.M)
_CONDITION = re.compile(
    r"#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b((?:[ \t]|\w|[!&|<>=()+-])*)" + _TAIL, re.A
)
_NAME = re.compile(r"\b[A-Za-z_]\w*", re.A)
# By g++ itself, and by no header
PREDEFINED = re.compile(r"__cplusplus|__cpp_(?!lib_)\w+|__GNUC__|__GNUC_MINOR__|__clang__")
_CLOSING = re.compile(rf"[ \t]*#[ \t]*(else|endif){_TAIL}")
_UNCLEAR = re.compile(r"/\*|\\[ \t\v\f\r]*\n|R\"|\?\?")  # what may hide a line from its reader
_MACRO_FLAG = re.compile(r"(?:-Wp,)?-[DU]([A-Za-z_]\w*)", re.A)
LONE_CR = re.compile(r"\r(?!\n)")
DIRECTIVE = re.compile(r"#[ \t]*[a-z]*")
# Of which no macro in it is replaced
_MESSAGE = re.compile(rb"(?:\A|(?<![\\/ \t\v\f\r])\n)[ \t]*#[ \t]*(?:error|warning)\b[^\n]*")


@dataclass(frozen=True)
class Choice:
    """Conditions up to ``end``, with the names that they ask for, and those that are defined in any
    of their branches."""

    end: int
    asked: frozenset[str]
    defined: frozenset[str]


def only_defines(text: str, at: int) -> Choice | None:
    r"""The conditions that begin here, if there is nothing but macros in them.

    >>> text = "#if A > 1\n#define B\n#else\n# ifdef C\n# endif\n#endif // A\nint x;"
    >>> found = only_defines(text, 0)
    >>> text[found.end :], sorted(found.asked), sorted(found.defined)
    ('int x;', ['A', 'C'], ['B'])
    >>> only_defines("#else\n#endif", 0), only_defines("#if A\nint x;\n#endif", 0)
    (None, None)
    """
    depth, asked, defined = 0, set[str](), set[str]()
    while match := _CONDITION.match(text, at) or DEFINE.match(text, at):
        if not depth and (match.re is DEFINE or not match[1].startswith("if")):
            return None
        if match.re is DEFINE:
            defined.add(match[1])
        else:
            depth += match[1].startswith("if")
            depth -= match[1] == "endif"
            asked.update(_NAME.findall(match[2]))
        at = match.end()
        if not depth:
            return Choice(at, frozenset(asked - {"defined"}), frozenset(defined))
        blank = BLANK.match(text, at)
        at = blank.end() if blank is not None else at
    return None


def branch(text: str, at: int, *, to_end: bool) -> re.Match[str]:
    """The end of a branch that g++ skips, which begins here: #else or #endif, or the latter alone.
    Raises Ended where it is not clear."""
    depth = 0
    for line in _NESTS.finditer(text, at):
        if line[1].startswith("if"):
            depth += 1
        elif depth:
            depth -= line[1] == "endif"
        elif line[1] == "endif" or not to_end:
            match = _CLOSING.match(text, line.start())
            if match is None or _UNCLEAR.search(text, at, match.end()):
                break
            return match
    raise Ended("a condition whose end is not clear stands")


def by_flags(words: tuple[str, ...]) -> tuple[set[str], set[str]]:
    """The macros that flags are about, and those that they certainly define.

    >>> given, defined = by_flags(("-DA", "-D", "B=1", "-DC=2", "-UC", "-Wp,-DD", "-DE", "-DE=1"))
    >>> sorted(given), sorted(defined)
    (['A', 'B', 'C', 'D', 'E'], ['A', 'B', 'E'])
    """
    pairs = [f"{word}{after}" for word, after in pairwise(words) if word in ("-D", "-U")]
    defined, others = set[str](), set[str]()
    for word in (*words, *pairs):
        if match := _MACRO_FLAG.match(word):
            (defined if word.startswith("-D") else others).add(match[1])
    return defined | others, defined - others


def only_in_messages(text: bytes, name: str) -> bool:
    r"""Whether a file has a name nowhere but in what ``#error`` and ``#warning`` say, where it
    makes no difference whether it is a macro.

    >>> only_in_messages(b"#if defined(min)\n#error define NOMINMAX\n#endif\n", "NOMINMAX")
    True
    >>> only_in_messages(b"#ifndef NOMINMAX\n#error define NOMINMAX\n#endif\n", "NOMINMAX")
    False
    """
    word = name.encode()
    return word not in text or word not in _MESSAGE.sub(b"", text)

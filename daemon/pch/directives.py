"""The preprocessor's lines over which the walk through an opening goes (``opening.py``).

Each pattern takes its line with the end of it, comments included, where it is certain what g++
makes of it; what none of them takes ends the walk.
"""

from __future__ import annotations

import re


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
_CLOSING = re.compile(rf"[ \t]*#[ \t]*(else|endif){_TAIL}")
_UNCLEAR = re.compile(r"/\*|\\[ \t\v\f\r]*\n|R\"|\?\?")  # what may hide a line from its reader
LONE_CR = re.compile(r"\r(?!\n)")
DIRECTIVE = re.compile(r"#[ \t]*[a-z]*")


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

"""Remove the values of macros from texts that are kept: ``-DAPI_KEY=…`` may be a secret."""

from __future__ import annotations

import re

_FLAG = re.compile(
    r"""(?P<open>["']?)                                # the quotation of the whole flag,
    (?:(?<![\w-])|(?<=-Xcompiler))(?:-D|--define-macro=?)
    (?:["'],[ \t]*(?=["'])|[ \t]*)(?P<inner>["']?)     # or of the definition, or a list's next word
    [A-Za-z_]\w*(?:\([^()\n]*\))?=""",
    re.VERBOSE,
)
_QUOTED = {'"': re.compile(r'(?:\\.|[^"\\\n])*'), "'": re.compile(r"(?:\\.|[^'\\\n])*")}
_PLAIN = re.compile(r"""(?:\\.|[^\s"'\\])*""")
_NEXT_IN_LIST = re.compile(r"""["'](?:, |[])])""")


def redacted(text: str) -> str:
    r"""The text without the values of macros.

    >>> redacted("g++ -DKEY=1 '-DOTHER=a b'c -D THIRD=\"x y\" -DPLAIN -O2")
    "g++ -DKEY=… '-DOTHER=…' -D THIRD=… -DPLAIN -O2"
    >>> redacted("['-DKEY=s3cret', '-D', 'OTHER=x', '-O2']")
    "['-DKEY=…', '-D', 'OTHER=…', '-O2']"
    """
    parts = []
    at = 0
    for match in _FLAG.finditer(text):
        if match.start() >= at:
            quote = match["inner"] or match["open"]
            parts += [text[at : match.end()], "…", quote]
            at = _end_of_word(text, match.end(), quote)
    return "".join([*parts, text[at:]])


def _end_of_word(text: str, at: int, quote: str) -> int:
    """Where the word ends that ``at`` is in, within a quotation that is open already, if any.
    Ends with the line."""
    first = quote
    while True:
        if quote:
            at = _end(_QUOTED[quote], text, at)
            if text[at : at + 1] != quote or (first and _NEXT_IN_LIST.match(text, at)):
                return min(at + 1, len(text)) if text[at : at + 1] == quote else at
            at += 1
        first = ""
        at = _end(_PLAIN, text, at)
        quote = text[at : at + 1]
        if quote not in _QUOTED:
            return at
        at += 1


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at

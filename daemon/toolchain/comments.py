"""A source without what is in its comments, for the key under which its object is kept.

Every other character stays in its line and column, because code may ask for either (``__LINE__``,
``std::source_location``). Where a compiler may read comments or write down more than code
(warnings, debug information) or where the text cannot be told apart with certainty, it stays as it
is.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

_TOKEN = re.compile(
    r"""
    (?P<whole> (?: (?:u8|[uUL])?R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)"  # raw strings
                 | (?:u8|[uUL])?"(?:\\.|[^"\\\n])*"
                 | (?:u8|[uUL])?'(?:\\.|[^'\\\n])*' ) (?:[^\W\d][\w$]*)?        # "x"_suffix
             | \.?\d(?:'[A-Za-z0-9_]|[eEpP][+-]|[\w.])*                  # numbers, as 1'000
             | (?:[^\W\d]|\$)[\w$]* )
    | (?P<comment> //(?:\\[ \t]*\r?\n|[^\n])* | /\*.*?\*/ )
    | (?P<odd> ["'] | /\* | \?\?/                            # unfinished, or a trigraph
             | (?<=\S)\\[ \t]*\r?\n(?=\S)                    # a token over two lines
             | \\(?![ \t]*\r?\n) )                          # a letter written as a number
    """,
    re.S | re.X,
)
# A header's name may look like a comment, also on the next line.
_HEADER = re.compile(
    r"(?:\#|%:|include|import|embed)[^\n]*<[^>\n]*/[/*] | (?:include|import"
    r"|embed)[^\n]*\\[ \t]*\r?\n",
    re.X,
)
_SPLICED_END = re.compile(r"\*\\[ \t]*\r?\n")
_END_OF_LINE = re.compile(r"[ \t]+(?=\n)")
_HARMLESS = re.compile(
    r"-O|-[DUI]|-isystem|-std=|-m[a-z]|-fPIC|-f(?:no-)?(?:openmp|fast-math|exceptions|rtti"
    r"|unroll-loops)$|-gencode|-arch="
    r"|-?-use_fast_math|--?expt-|--?extended-lambda|--?generate-code|--?gpu-architecture"
)


@functools.lru_cache(maxsize=8)  # each way of a flight asks for the same texts
def without_comments(text: str) -> str:
    r"""The text with blanks in place of comments, and none at the end of a line.

    >>> without_comments('int x = 1;  // one\nauto s = "// none"; /* a\nb */ f();')
    'int x = 1;\nauto s = "// none"; /*\n  */ f();'
    """
    if (
        _HEADER.search(text) or "diagnostic" in text
    ):  # a pragma may turn on a warning that reads comments
        return text
    done: list[str] = []  # lines that are finished, and strings with lines of their own
    line = ""  # what follows upon them
    at = 0
    for match in _TOKEN.finditer(text):
        if match["odd"] or _SPLICED_END.search(match["comment"] or ""):
            return text
        line += text[at : match.start()]
        at = match.end()
        if match["comment"] is not None:
            line += _blank(match["comment"])
        elif "\n" in match[0]:
            done += [_END_OF_LINE.sub("", line), match[0]]
            line = ""
        else:
            line += match[0]
    done.append(_END_OF_LINE.sub("", line + text[at:] + "\n")[:-1])
    return "".join(done)


def _blank(comment: str) -> str:
    """As many bytes, and as many lines.
    One over several lines keeps its marks: a directive goes on behind it."""
    if comment.startswith("/*") and "\n" in comment:
        return f"/*{_blank(comment[2:-2])}*/"
    return "".join(
        letter if letter in "\t\n\r\f\v" else " " * len(letter.encode("utf-8", "surrogatepass"))
        for letter in comment
    )


def may_be_left_out(flags: Iterable[str]) -> bool:
    """Whether a compiler with these flags makes the same of a source without its comments."""
    words = [word for text in flags for word in text.split()]
    operands = {
        index + 1
        for index, word in enumerate(words)
        if word in ("-D", "-U", "-I", "-isystem", "-gencode")
    }
    return all(index in operands or _HARMLESS.match(word) for index, word in enumerate(words))

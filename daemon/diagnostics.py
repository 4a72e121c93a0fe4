"""Turn a compiler's text into records, and its locations into the user's own lines.

An inline source is compiled as ``main.cpp``, behind the lines that stock puts in front of it and with the generated
binding behind it. A ``LineMap`` knows which line of ``main.cpp`` is which line of which of the caller's strings.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field

from warmcc.protocol import Diagnostic, Severity

_SEVERITY = r"(?P<severity>fatal error|error|warning|note)"
_TOOL = r"(?P<tool>[^\s:]*(?:g\+\+|gcc|c\+\+|clang\+\+|clang|cc1plus|collect2|ld|lld|mold)[^\s:]*)"
_LOCATED = re.compile(rf"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:(?P<column>\d+):)? {_SEVERITY}: (?P<message>.*)$")
_BARE = re.compile(rf"^{_TOOL}: {_SEVERITY}: (?P<message>.*)$")
_UNDEFINED = re.compile(r"^(?:.*: )?(?P<message>undefined (?:reference|symbol).*)$")
_MAIN = re.compile(r"(?P<path>(?:[\w./+-]*/)?main\.cpp):(?P<line>\d+)")
_GUTTER = re.compile(r"^(?P<pad> *)(?P<line>\d+)(?P<rest> \|.*)$")
BINDING = "functions"  # the name of the generated part


@dataclass
class LineMap:
    """Where the parts of an inline source begin in ``main.cpp``: sorted first lines, with the name of each part."""

    starts: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    @staticmethod
    def of(main_cpp: str, cpp_sources: list[str]) -> LineMap:
        """Find the caller's strings in the text that stock wrote: it joins them with newlines, in order."""
        found = LineMap()
        at = 0
        for index, text in enumerate(cpp_sources):
            at = main_cpp.find(text, at)
            if at < 0:
                return LineMap()
            found.starts.append(main_cpp.count("\n", 0, at) + 1)
            found.names.append(f"cpp_sources[{index}]")
            at += len(text)
        if main_cpp.find("\n", at) >= 0:
            found.starts.append(main_cpp.count("\n", 0, at) + 2)
            found.names.append(BINDING)
        return found

    def locate(self, line: int) -> tuple[str, int]:
        """The part and the line in it, both as the user counts them."""
        index = bisect_right(self.starts, line) - 1
        if index < 0:
            return "main.cpp", line
        return self.names[index], line - self.starts[index] + 1


def to_user_lines(text: str, lines: LineMap) -> str:
    """The compiler's text with every ``main.cpp:N`` and the excerpt's margin in the user's numbering."""
    if not lines.starts:
        return text
    ours = False  # the excerpt that is being printed is of main.cpp
    out = []
    for row in text.split("\n"):
        gutter = _GUTTER.match(row)
        if gutter is not None:
            if ours:
                number = str(lines.locate(int(gutter["line"]))[1])
                row = gutter["pad"] + number.rjust(len(gutter["line"])) + gutter["rest"]
        elif _LOCATED.match(row) is not None:
            ours = _MAIN.match(row) is not None
        out.append(_MAIN.sub(lambda match: "{}:{}".format(*lines.locate(int(match["line"]))), row))
    return "\n".join(out)


def parse(text: str) -> list[Diagnostic]:
    """Every message of a compiler or linker in ``text``, in order. Gives records for GCC's, clang's and ld's forms."""
    found = []
    for row in text.split("\n"):
        if match := _LOCATED.match(row):
            severity: Severity = match["severity"]  # type: ignore[assignment]
            found.append(
                Diagnostic(match["file"], int(match["line"]), int(match["column"] or 0), severity, match["message"])
            )
        elif match := _BARE.match(row):
            severity = match["severity"]  # type: ignore[assignment]
            found.append(Diagnostic(match["tool"], 0, 0, severity, match["message"]))
        elif match := _UNDEFINED.match(row):
            found.append(Diagnostic("", 0, 0, "error", match["message"]))
    return found

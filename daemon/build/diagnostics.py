"""Turn a compiler's text into records, and its locations into the user's own lines.

Inline sources are compiled as ``main.cpp`` and ``cuda.cu``, behind the lines that stock puts in
front of them and the former with the generated binding behind it. A ``LineMap`` knows which line of
such a file is which line of which of the caller's strings. g++ writes ``main.cpp:3:``, nvcc's front
ends ``cuda.cu(3):``.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from warmcc.protocol import Diagnostic, Severity

_SEVERITY = r"(?P<severity>fatal error|error|warning|note)"
_TOOL = r"(?P<tool>[^\s:]*(?:g\+\+|gcc|c\+\+|clang\+\+|clang|cc1plus|collect2|ld|lld|mold)[^\s:]*)"
_NVCC = re.compile(
    r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): (?P<severity>(?:catastrophic )?error|warning|note"
    r"|remark)"
    r"(?: #[\w-]+)?: (?P<message>.*)$"
)
_TOOLKIT = re.compile(
    r"^(?P<tool>ptxas|nvcc|nvlink|fatbinary|cicc) (?P<severity>error|fatal|warning"
    r"|info) *: (?P<message>.*)$"
)
_LOCATED = re.compile(
    rf"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:(?P<column>\d+):)? {_SEVERITY}: (?P<message>.*)$"
)
_BARE = re.compile(rf"^{_TOOL}: {_SEVERITY}: (?P<message>.*)$")
_UNDEFINED = re.compile(r"^(?:.*: )?(?P<message>undefined (?:reference|symbol).*)$")
_OURS = re.compile(
    r"(?:[\w./+-]*/)?(?P<name>main\.cpp|cuda\.cu)(?::(?P<line>\d+)|\((?P<bracketed>\d+)\))"
)
_GUTTER = re.compile(r"^(?P<pad> *)(?P<line>\d+)(?P<rest> \|.*)$")
_SEVERITIES = {
    "catastrophic error": "fatal error", "fatal": "fatal error", "remark": "note", "info": "note",
}  # fmt: skip
_FILES = {"cpp_sources": "main.cpp", "cuda_sources": "cuda.cu"}
BINDING = "functions"  # the name of the generated part


@dataclass
class LineMap:
    """Where the parts of an inline source begin: sorted first lines, with names of parts."""

    file: str = "main.cpp"
    starts: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    @staticmethod
    def of(written: str, sources: list[str], name: str = "cpp_sources") -> LineMap:
        """Find the caller's strings in stock's text, which joins them with newlines, in order."""
        found = LineMap(_FILES[name])
        at = 0
        for index, text in enumerate(sources):
            at = written.find(text, at)
            if at < 0:
                return LineMap(found.file)
            found.starts.append(written.count("\n", 0, at) + 1)
            found.names.append(f"{name}[{index}]")
            at += len(text)
        if written.find("\n", at) >= 0:
            found.starts.append(written.count("\n", 0, at) + 2)
            found.names.append(BINDING)
        return found

    def locate(self, line: int) -> tuple[str, int]:
        """The part and the line in it, both as the user counts them."""
        index = bisect_right(self.starts, line) - 1
        if index < 0:
            return self.file, line
        return self.names[index], line - self.starts[index] + 1


def to_user_lines(text: str, maps: Iterable[LineMap]) -> str:
    """The compilers' text with ``main.cpp:N`` and the margins in the user's line numbers."""
    known = {found.file: found for found in maps if found.starts}
    if not known:
        return text
    ours: LineMap | None = None  # of the excerpt that is being printed

    def located(match: re.Match[str]) -> str:
        if match["name"] not in known:
            return match.group()
        part, line = known[match["name"]].locate(int(match["line"] or match["bracketed"]))
        return f"{part}:{line}" if match["line"] else f"{part}({line})"

    out = []
    for row in text.split("\n"):
        gutter = _GUTTER.match(row)
        if gutter is not None:
            if ours is not None:
                number = str(ours.locate(int(gutter["line"]))[1])
                row = gutter["pad"] + number.rjust(len(gutter["line"])) + gutter["rest"]
        elif _LOCATED.match(row) is not None:
            own = _OURS.match(row)
            ours = known.get(own["name"]) if own is not None else None
        out.append(_OURS.sub(located, row))
    return "\n".join(out)


def parse(text: str) -> list[Diagnostic]:
    """Every message of a compiler or linker in ``text``: GCC's, clang's, nvcc's and ld's."""
    found = []
    for row in text.split("\n"):
        if match := _LOCATED.match(row):
            severity: Severity = match["severity"]  # type: ignore[assignment]
            found.append(
                Diagnostic(
                    match["file"], int(match["line"]), int(match["column"] or 0), severity,
                    match["message"],
                )
            )  # fmt: skip
        elif match := _NVCC.match(row):
            severity = _SEVERITIES.get(match["severity"], match["severity"])  # type: ignore[assignment]
            found.append(
                Diagnostic(match["file"], int(match["line"]), 0, severity, match["message"])
            )
        elif match := _TOOLKIT.match(row):
            severity = _SEVERITIES.get(match["severity"], match["severity"])  # type: ignore[assignment]
            found.append(Diagnostic(match["tool"], 0, 0, severity, match["message"]))
        elif match := _BARE.match(row):
            severity = match["severity"]  # type: ignore[assignment]
            found.append(Diagnostic(match["tool"], 0, 0, severity, match["message"]))
        elif match := _UNDEFINED.match(row):
            found.append(Diagnostic("", 0, 0, "error", match["message"]))
    return found

"""What g++ and nvcc say of names that they do not know."""

from __future__ import annotations

import re

_QUOTED = "\u2018([^\u2019]*)\u2019"
_MEMBER = re.compile(
    rf"{_QUOTED} is not a member of {_QUOTED}"
    rf"|no (?:member|type) named {_QUOTED} in (?:namespace )?{_QUOTED}"
    rf"|{_QUOTED} in namespace {_QUOTED} does not name"
    '|()namespace "([^"]*)" has no member "([^"]*)"'
)
_UNKNOWN = re.compile(
    rf"{_QUOTED} (?:was not declared|has not been declared|does not name a)"
    rf"|incomplete type {_QUOTED}|expected constructor, destructor, or type conversion before"
    '|identifier "([^"]*)" is undefined|incomplete type "([^"]*)"'
)
_NEVER_DEFINED = re.compile(rf"inline function {_QUOTED} (?:used|declared) but never defined")
_OPERATOR = re.compile(
    r"no match for \u2018operator|no operator \"|cannot be used as an operand|no match for call"
)
_MACRO = re.compile(r"^ *\d+ \| ([A-Z][A-Z0-9_]{3,})\(", re.M)
_CLEAN = re.compile(r"<.*|\s*\{.*|\(.*|\b(?:struct|class|const)\b|[&*\s]")


def unknown(output: str) -> list[str]:
    """The names in a compiler's errors, qualified where it says of what, in their order.

    >>> unknown("a.cpp:3:6: error: \u2018vector\u2019 is not a member of \u2018std\u2019")
    ['std::vector']
    >>> unknown('x.cu(4): error: namespace "at" has no member "empty"')
    ['at::empty']
    """
    found: list[str] = []
    for line in output.splitlines():
        if "error" not in line and "never defined" not in line:
            continue
        for match in _MEMBER.finditer(line):
            parts = [part for part in match.groups() if part]
            if '"' in match[0]:
                parts.reverse()
            if len(parts) == 2:
                found.append(f"{_clean(parts[1])}::{_clean(parts[0])}")
        for match in _UNKNOWN.finditer(line):
            found += [_clean(part) for part in match.groups() if part]
        for match in _NEVER_DEFINED.finditer(line):
            found.append(_clean(match[1].split("(")[0].split()[-1]))
    if "expected constructor" in output or "no type specifier" in output or not found:
        found += _MACRO.findall(output)
    return [name for name in dict.fromkeys(found) if name]


def lacks_operators(output: str) -> bool:
    """Whether an operator of tensors is missing."""
    return _OPERATOR.search(output) is not None or "operator[]" in output


def first(output: str) -> str:
    """The first error, for a person."""
    lines = output.splitlines()
    return next((line for line in lines if "error" in line), lines[0] if lines else "no output")


def _clean(name: str) -> str:
    return _CLEAN.sub("", name).strip(":")

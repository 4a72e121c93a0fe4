"""Compare the functions that two assembler texts define: instructions and constants.

Labels are numbered by the whole file, so that the same function reads differently in two files:
constants are replaced by what they hold, other local labels by their order in the function.
"""

from __future__ import annotations

import re

_OUTERMOST = re.compile(r"_Z+N?[KVrRO]*L?(\d+)")
_LIBRARIES = {"std", "at", "c10", "torch", "caffe2", "pybind11", "__gnu_cxx"}
_SYMBOL = re.compile(r"^([A-Za-z_$][\w$.@]*):")
_LOCAL = re.compile(r"\.L[A-Z]*\d+")
_CONSTANT = re.compile(r"\.LC\d+")
_IGNORED = re.compile(
    r"\s*\.(?:cfi_|loc\b|file\b|size\b|type\b|p2align|align|section|text|weak|globl|local|hidden"
    r"|set\b)"
)


def functions(text: str) -> dict[str, list[str]]:
    """The functions of an assembler text by symbol, as lines independent of the rest."""
    lines = text.split("\n")
    constants = _constants(lines)
    typed = set(re.findall(r"\.type\s+(\S+), @function", text))
    found: dict[str, list[str]] = {}
    body: list[str] | None = None
    labels: dict[str, str] = {}
    for line in lines:
        if match := _SYMBOL.match(line):
            body, labels = (found.setdefault(match[1], []), {}) if match[1] in typed else (None, {})
        elif body is not None and line.startswith("\t.size"):
            body = None
        elif (
            body is not None
            and not _IGNORED.match(line)
            and not re.match(r"\.L[FVBE]+[BE]?\d+:", line)
        ):
            named = _CONSTANT.sub(lambda label: constants.get(label.group(), "?"), line)
            for label in _LOCAL.findall(named):
                named = named.replace(label, labels.setdefault(label, f".l{len(labels)}"))
            body.append(named)
    return found


def _constants(lines: list[str]) -> dict[str, str]:
    """What stands behind each label of a constant."""
    found: dict[str, str] = {}
    label = ""
    for line in lines:
        if re.match(r"\.LC\d+:", line):
            label = line.rstrip(":")
            found[label] = ""
        elif label and re.match(r"\t\.(?:string|ascii|long|quad|byte|value|zero|octa)\b", line):
            found[label] += f"<{line.strip()}>"
        else:
            label = ""
    return found


def users(text: str, source: str) -> dict[str, list[str]]:
    """The functions that are a source's own: it mentions their outermost name.
    A library's do not count.

    (Of libraries' templates another instance may be the first, which decides what is known to be
    unable to throw.)
    """
    mentioned = set(re.findall(r"[A-Za-z_]\w*", source)) - _LIBRARIES | {"_GLOBAL__N_1"}
    return {name: body for name, body in functions(text).items() if _outermost(name) in mentioned}


def _outermost(symbol: str) -> str:
    """The first name in a symbol: of a function, or of the namespace or class that it is in."""
    if (match := _OUTERMOST.match(symbol)) is None:
        return symbol
    return symbol[match.end() : match.end() + int(match[1])]


def differing(one: str, other: str, source: str) -> list[str]:
    """The source's functions that the first text defines, but not the second, or not equally."""
    second = functions(other)
    return sorted(name for name, body in users(one, source).items() if second.get(name) != body)

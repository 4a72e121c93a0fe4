"""``python docs/sentences.py FILE …``: one sentence per line in the prose of Markdown files.

``--check`` reports the lines that hold two sentences or end inside a sentence, and changes nothing.
Tables, code, headings, HTML and the structure of lists stay as they are.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

_FENCE = re.compile(r"\s*(?:>\s*)*(```+|~~~+)")
_ITEM = re.compile(r"(\s*(?:>\s?)*\s*(?:[-*+]|\d+[.)])\s+)(.*)")
_QUOTE = re.compile(r"(\s*(?:>\s?)+)(.*)")
_NO_PROSE = re.compile(r"#{1,6} |\||<|%|!!!|\?\?\?|---$|===|\[[^\]]+\]: ")
_CLOSED = re.compile(r"[.!?:;…][\"')*_»”`\]]*$|\)$|\\$")
_ABBREVIATIONS = ("e.g.", "i.e.", "etc.", "cf.", "vs.", "approx.", "incl.", "Dr.", "…", "...")


def split(text: str) -> list[str]:
    """The sentences of one paragraph; code spans and the text of links are never cut."""
    shielded = re.sub(r"`[^`]*`|\[[^\]]*\]\([^)]*\)", lambda found: "x" * len(found[0]), text)
    sentences, begin = [], 0
    for found in re.finditer(r"[.!?][\"')*_»”]*(?= )", shielded):
        word = shielded[begin : found.end()].rsplit(" ", 1)[-1]
        inside = shielded[: found.end()].count("(") > shielded[: found.end()].count(")")
        if word.endswith(_ABBREVIATIONS) or inside:
            continue
        sentences.append(text[begin : found.end()].strip())
        begin = found.end()
    return [*sentences, text[begin:].strip()] if text[begin:].strip() else sentences


def blocks(lines: Sequence[str]) -> Iterator[tuple[int, str, str, list[str]]]:
    """Each block of prose: its first line's number, the prefixes of its first and of its other
    lines, and its lines without these. Everything else comes with an empty text list.
    """
    fence, number = "", 0
    while number < len(lines):
        line = lines[number]
        opened = _FENCE.match(line)
        if fence:
            if opened and opened[1].startswith(fence) and line.strip(" >") == opened[1]:
                fence = ""
        elif opened:
            fence = opened[1]
        if fence or opened or not _prose(line):
            yield number, line, "", []
            number += 1
            continue
        first, rest, text = _taken_apart(line)
        found = [text]
        begin = number
        number += 1
        while number < len(lines) and _goes_on(lines[number], rest):
            found.append(re.sub(r"^[\s>]*", "", lines[number]).rstrip())
            number += 1
        yield begin, first, rest, found


def _prose(line: str) -> bool:
    bare = line.strip(" >\t")
    return bool(bare) and not _NO_PROSE.match(bare) and not line.startswith("    ")


def _taken_apart(line: str) -> tuple[str, str, str]:
    for pattern in (_ITEM, _QUOTE):
        if found := pattern.match(line):
            first = found[1]
            rest = first if pattern is _QUOTE else re.sub(r"[^>\s]", " ", first)
            return first, rest, found[2].rstrip()
    indent = line[: len(line) - len(line.lstrip())]
    return indent, indent, line.strip()


def _goes_on(line: str, rest: str) -> bool:
    bare = line.strip(" >\t")
    if not bare or _ITEM.match(line) or _NO_PROSE.match(bare) or _FENCE.match(line):
        return False
    return (">" in rest) == line.lstrip().startswith(">")


def reflowed(text: str) -> str:
    """The same document with one sentence per line."""
    made: list[str] = []
    for _, first, rest, found in blocks(text.splitlines()):
        if not found:
            made.append(first)
            continue
        for number, sentence in enumerate(split(" ".join(found))):
            made.append((rest if number else first) + sentence)
    return "\n".join(made) + "\n"


def faults(text: str) -> list[str]:
    """The lines that hold two sentences, and those that end inside one."""
    wrong = []
    for begin, _, _, found in blocks(text.splitlines()):
        for offset, line in enumerate(found):
            if len(split(line)) > 1:
                wrong.append(f"line {begin + offset + 1}: two sentences: {line}")
            if offset + 1 < len(found) and not _CLOSED.search(line):
                wrong.append(f"line {begin + offset + 1}: ends inside a sentence: {line}")
    return wrong


def main(arguments: Sequence[str]) -> int:
    check = "--check" in arguments
    bad = False
    for name in (one for one in arguments if one != "--check"):
        path = Path(name)
        text = path.read_text(encoding="utf-8")
        for fault in faults(text) if check else ():
            bad = True
            print(f"{path}: {fault}")
        if not check:
            path.write_text(reflowed(text), encoding="utf-8")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

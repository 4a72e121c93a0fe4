"""Cut the bodies of functions out of a header of torch's.

What stays is what a kernel's host code sees of a library: declarations. Bodies stay where somebody
may need them who sees this header only: of templates, of ``constexpr`` functions, of those that
return ``auto``, and of all that may run on the device. The scanner knows C++ as far as headers are
written; where it is in doubt it leaves the text as it is.
"""

from __future__ import annotations

import re

# Nothing in these is code: comments, literals, and directives of the preprocessor with their
# continued lines.
_SKIPPED = re.compile(
    r"//[^\n]*|/\*.*?\*/|R\"(\w*)\(.*?\)\1\"|\"(?:\\.|[^\"\\\n])*\"|(?<!\w)'(?:\\.|[^'\\\n])+'"
    r"|^[ \t]*\#(?:\\\n|//[^\n]*|/\*.*?\*/|[^\n])*",
    re.S | re.M,
)
_NEEDED = re.compile(
    r"\b(?:template|constexpr|consteval|auto|decltype|requires|friend|__device__|__host__|__global__|C10_DEVICE|C10_HOST"
    r"|\w*HOST_DEVICE\w*|\w+_FORALL_\w+|\w+_DEFINE_\w+)\b"
)
_NAMESPACE = re.compile(r"(?:inline\s+)?namespace\b[\w:\s]*|extern")  # literals are blank
_CLASS = re.compile(r"(?:class|struct)\b")
_PAIRS = {"(": ")", "{": "}"}
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(if|el|endif)", re.M)


def cut(text: str) -> str:
    """The header without the bodies that nobody needs. Raises ValueError where brackets do not
    match, or where a body begins under another condition than it ends.
    """
    code = _SKIPPED.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    removed: list[tuple[int, int, str]] = []
    _scope(code, 0, removed)
    parts, done = [], 0
    for start, end, instead in removed:
        if not _whole(text[start:end]):
            raise ValueError("a body ends under another condition of the preprocessor")
        parts += [text[done:start], instead]
        done = end
    return "".join(parts) + text[done:]


def _whole(text: str) -> bool:
    """Whether each condition in a part of a header begins and ends there."""
    depth = 0
    for match in _CONDITION.finditer(text):
        depth += {"if": 1, "el": 0, "endif": -1}[match.group(1)]
        if depth < 0 or (depth == 0 and match.group(1) == "el"):
            return False
    return depth == 0


def _scope(code: str, at: int, removed: list[tuple[int, int, str]]) -> int:
    """Go through a namespace or a class from behind its bracket; where it ends."""
    start = at
    token = re.compile(r"[;{}(]|(?:public|protected|private)\s*:(?!:)")
    while (match := token.search(code, at)) is not None:
        at = match.end()
        if match.group() == "}":
            return at
        if match.group() == "(":
            at = _closing(code, match.start())
        elif match.group() == "{":
            head = code[start : match.start()].strip()
            if _NAMESPACE.fullmatch(head) or (_CLASS.match(head) and "(" not in head):
                start = at = _scope(code, at, removed)
            else:
                start = at = _definition(code, start, match.start(), removed)
        else:
            start = at
    return len(code)


def _definition(code: str, start: int, opened: int, removed: list[tuple[int, int, str]]) -> int:
    """Something with a bracket that is no scope: cut it if it is a function whose body nobody
    needs; where it ends.
    """
    head = code[start:opened]
    if _NEEDED.search(head) or not re.match(r"\s*[\w~:\[]", head):
        return _closing(code, opened)
    declared, body = opened, opened
    if (colon := _initializers(head)) is not None:
        declared, body = start + colon, _body(code, start + colon)
    end = _closing(code, body)
    declaration = code[start:declared]
    function = "(" in declaration and declaration.rstrip().endswith(
        (")", "const", "noexcept", "override", "final", "&")
    )
    if not function:
        return end
    if "::" in declaration.split("(")[0].split()[-1]:
        removed.append(
            (start, end, "")
        )  # a member's, defined outside of its class, where it is declared
    else:
        removed.append((declared, end, ";"))
    return end


def _initializers(head: str) -> int | None:
    """Where a constructor's list of initializers begins, if there is one."""
    depth = 0
    for match in re.finditer(r"[()]|(?<!:):(?!:)", head):
        if match.group() == ":":
            if depth == 0 and ")" in head[: match.start()]:
                return match.start()
        else:
            depth += 1 if match.group() == "(" else -1
    return None


def _body(code: str, at: int) -> int:
    """Where the body opens behind a list of initializers that begins with the colon here."""
    while True:
        match = re.compile(r"[({]").search(code, at)
        if match is None:
            raise ValueError("a constructor has no body")
        named = re.search(r"[\w>]\s*$", code[at : match.start()]) is not None
        if match.group() == "{" and not named:
            return match.start()
        at = _closing(code, match.start())


def _closing(code: str, at: int) -> int:
    """Where the bracket that opens here is closed, and one further. Raises ValueError."""
    opening, closing = code[at], _PAIRS[code[at]]
    depth = 0
    for match in re.compile(f"[{re.escape(opening + closing)}]").finditer(code, at):
        depth += 1 if match.group() == opening else -1
        if depth == 0:
            return match.end()
    raise ValueError(f"a {opening} is not closed")

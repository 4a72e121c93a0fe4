"""What a command line of a build.ninja means: ninja reads it first, and then the shell.

The daemon takes over stock's flags verbatim, so ninja and the shell read them as they do there. It
does so only where both read nothing but words: no variable, no command, no pattern, no redirection,
and nothing that ends the line.
"""

from __future__ import annotations

import re
import shlex

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

# What ninja takes from a value: all but a dollar, or a dollar in front of what stands for itself.
_TO_NINJA = re.compile(r"(?:[^$]|\$[ :$])*")
# What the shell takes for parts of words: plain characters, single quotes, a character behind a
# backslash, and double quotes. What a backslash in double quotes means depends on the reader, but
# for these.
_SPECIAL = r"\x00-\x1f\x7f-\x9f`$*?;&|<>~(){}\[\]#!"
_TO_SHELL = re.compile(
    rf"""(?:[^{_SPECIAL}'"\\]|'[^\x00-\x1f\x7f-\x9f']*'|\\[^\x00-\x1f\x7f-\x9f]"""
    rf"""|"(?:[^{_SPECIAL}"\\]|\\[^\x00-\x1f\x7f-\x9f$`])*")*"""
)


def decoded(text: str) -> str:
    """A value of a build.ninja as ninja hands it on."""
    return re.sub(r"\$([ :$])", r"\1", text)


def words(text: str) -> list[str]:
    """A value of a build.ninja as the words that a program gets.
    Raises ValueError on open quotes."""
    return shlex.split(decoded(text))


def acts_on(text: str) -> str | None:
    """What ninja or the shell would do to a value beyond reading words; None for nothing."""
    if (found := CONTROL.search(text)) is not None:
        return f"the control character {found[0]!r} is not allowed"
    if (end := _end(_TO_NINJA, text)) < len(text):
        return f"ninja would read {text[end : end + 2]!r}"
    text = decoded(text)
    if (end := _end(_TO_SHELL, text)) == len(text):
        return None
    if text[end] not in "'\"\\":
        return f"the shell would read {text[end]!r}"
    try:
        shlex.split(text)
    except ValueError:
        return "a quote is not closed"
    return "the shell would expand text in double quotes"


def _end(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.match(text)
    return found.end() if found is not None else 0

"""What ninja and the shell read in a value of a build.ninja: compared with what a real ninja and a
real shell do.
"""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from warmcc.daemon.toolchain import shell

WORDS = [
    "-O2 -Wall", "-DX=1", "-DNAME='\"text\"'", '-DNAME="a b"', "-DNAME=\\\"text\\\"", "'it'\\''s'",
    "'$$HOME'", "\\$$HOME", "a$ b", "a$:b", '"it\'s"', '"a\\"b"', '"a\\\\b"', '"a\\nb"',
    "'a;b|c&d'", "ü", "a\\;b", "''", '""', "a=b,c%d@e^f",
]  # fmt: skip
MORE = [
    "a;b", "a|b", "a&b", "$(b)", "$$(b)", "`b`", "$$b", "$b", "'$b'", "'$in'", "a $", "*", "?",
    "[a]", "{a,b}", "~", "#", "a<b", "a>b", "a\nb", "'a\nb'", "a\tb", "a\0b", "'a", '"a', "a\\",
    "\"'\";b;\"'\"", '"$$b"', '"`b`"', '"\\$$b"', "'\x7f'", "a\x85b",
]  # fmt: skip


@pytest.mark.parametrize("text", WORDS)
def test_words_are_what_a_program_gets(text: str, tmp_path: Path) -> None:
    assert shell.acts_on(text) is None
    rule = f"words = {text}\nrule show\n  command = printf '%s\\n' $words > $out\nbuild out: show\n"
    (tmp_path / "build.ninja").write_text(rule, encoding="utf-8")
    subprocess.run(["ninja"], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    assert (tmp_path / "out").read_text(encoding="utf-8").split("\n")[:-1] == shell.words(text)


@pytest.mark.parametrize("text", MORE)
def test_what_does_more_than_say_words(text: str) -> None:
    assert shell.acts_on(text) is not None


@pytest.mark.parametrize(
    "text", ["plain", "with space", "it's", 'a"b', "$HOME", "a:b", "ü", "a;b", "`x`", "#", "\\"]
)
def test_what_is_quoted_acts_on_nothing(text: str) -> None:
    quoted = shlex.quote(text).replace("$", "$$")
    assert shell.acts_on(quoted) is None and shell.words(quoted) == [text]

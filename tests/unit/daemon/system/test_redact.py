"""Values of macros, however a shell, Python or a compiler writes them down."""

from __future__ import annotations

import shlex

import pytest

from warmcc.daemon.system.redact import redacted

VALUES = [
    "hunter2",
    "a hunter2",
    "it's hunter2",
    '"hunter2"',
    '\\"hunter2\\"',
    "a,hunter2",
    "hunter2'",
    "hunter2\\",
]


@pytest.mark.parametrize("value", VALUES)
def test_no_value_is_left(value: str) -> None:
    word = f"-DKEY={value}"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    written = [
        shlex.quote(word), f"-DKEY={shlex.quote(value)}", f"-D {shlex.quote(f'KEY={value}')}",
        f'"-DKEY={escaped}"', f"-DKEY(x)={shlex.quote(value)}",
        f"--define-macro={shlex.quote(f'KEY={value}')}", f"--define-macro {word[2:]!r}",
        f"-Xcompiler={shlex.quote(word)}", f"-Xcompiler {shlex.quote(word)}",
        f"-Wp,{shlex.quote(word)}", repr([word]), repr(["-D", word[2:]]), repr((word, "-O2")),
        shlex.join(["sh", "-c", shlex.join(["c++", word])]),
    ]  # fmt: skip
    for text in written:
        found = redacted(f"c++ {text} -O2")
        assert "hunter2" not in found, (text, found)
        assert "KEY" in found and "=…" in found
        assert redacted(found) == found


def test_the_rest_stays() -> None:
    kept = (
        "c++ -DPLAIN -UOTHER -O2 -std=c++17 -Wl,--defsym=a=1 x-DKEY=1.cpp -I/a=b 'a b' "
        "error: it isn't = 5"
    )
    assert redacted(kept) == kept
    assert redacted("['-DKEY=1', '-O2'] (-DA=b) next") == "['-DKEY=…', '-O2'] (-DA=… next"

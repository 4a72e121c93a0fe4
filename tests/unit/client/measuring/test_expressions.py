"""Arguments as they are typed: what is read, and that nothing is evaluated as Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from warmcc.client.measuring.calls.expressions import Made, Name, read, read_words
from warmcc.errors import RequestError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3), ("-1.5", -1.5), ("+2", 2), ("True", True), ("None", None), ("'a b'", "a b"),
        ("[1, -2]", [1, -2]), ("(1, 'x')", (1, "x")), ("()", ()), (" 7 ", 7), ("1e3", 1000.0),
        ("cuda", Name("cuda")), ("float16", Name("float16")), ("torch.bfloat16", Name("bfloat16")),
        ("rand(2, 3)", Made("rand", None, (2, 3), {})),
        ("torch.zeros((4,), dtype=int64)", Made("zeros", None, ((4,),), {"dtype": Name("int64")})),
        ("rand(2).t()", Made("t", Made("rand", None, (2,), {}), (), {})),
        ("[ones(1), ones(2)]", [Made("ones", None, (1,), {}), Made("ones", None, (2,), {})]),
        ("randn(8, device='cuda:1')", Made("randn", None, (8,), {"device": "cuda:1"})),
    ],
)  # fmt: skip
def test_what_is_read(text: str, value: Any) -> None:
    assert read(text) == value


HOSTILE = [
    "__import__('os').system('touch {path}')", "open('{path}', 'w')", "exec('1')", "eval('1')",
    "rand.__class__", "rand(2).__class__", "rand(2).numpy().tofile('{path}')", "(lambda: 1)()",
    "[x for x in (1,)]", "f'{{1}}'", "rand(*[1])", "rand(**{{}})", "torch.load('{path}')",
    "torch.save(rand(1), '{path}')", "torch.ops.load_library('{path}')", "a := 1", "1 if 1 else 2",
    "{{1: 2}}", "os", "torch", "rand", "1 + 1", "'a' * 10**9", "10**10**10", "[1][0]", "not 1",
    "rand(2).to(rand(1).__class__)", "getattr(rand(2), 't')", "(1).t()", "'x'.join(['a'])", "...",
    "await x", "yield", "~1", "-'a'", "rand(2)(3)",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_else_is_read_or_run(text: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError):
        read(text.format(path=tmp_path / "written"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    ["", "rand(", "1 2", "a\0b", "(" * 500, "[" * 5000, "-" * 9000 + "1", "9" * 9999, "x" * 20000],
)
def test_what_is_no_expression_is_one_error(text: str) -> None:
    with pytest.raises(RequestError):
        read(text)


def test_words_are_positional_then_named() -> None:
    assert read_words(["1", "rand(2, device=cpu)", "alpha=2", "s='a=b'"]) == (
        [1, Made("rand", None, (2,), {"device": Name("cpu")})], {"alpha": 2, "s": "a=b"},
    )  # fmt: skip
    for words, said in (
        (["a=1", "2"], "behind a keyword"), (["a=1", "a=2"], "given twice"),
        (["a==1"], "understood"),
    ):  # fmt: skip
        with pytest.raises(RequestError, match=said):
            read_words(words)


def test_the_error_names_what_there_is() -> None:
    with pytest.raises(RequestError, match=r"'rnd' is not a function here; known: arange, "):
        read("rnd(3)")
    with pytest.raises(RequestError, match=r"'numpy' is not a method here; known: abs, "):
        read("rand(3).numpy()")
    with pytest.raises(RequestError, match="'cudda' is neither a dtype nor a device"):
        read("rand(3, device=cudda)")

"""Macros of flags: which a profile does without, and how a unit gets them all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from warmcc.daemon.closure.closure import Closure
from warmcc.daemon.cuda.unit_text import macros, mentions
from warmcc.daemon.cuda.warm.host_pch import HostPrelude, Making
from warmcc.daemon.cuda.warm.host_text import Said
from warmcc.daemon.cuda.warm.level import PRELUDE, Level
from warmcc.daemon.cuda.warm.profile import CudaProfile

TEXT = "int n = N;\n"


@pytest.mark.parametrize(
    ("words", "text", "left_out"),
    [
        (["-DN=64", "-O3", "-DM"], TEXT, ["-DN=64", "-DM"]),
        (["-DN=64", "-DN=64"], TEXT, []),
        (["-DN=64", "-UN"], TEXT, []),
        (["-DN=64", "-D", "M"], TEXT, []),
        (["-Xcompiler", "-DN=64", "-DM"], TEXT, ["-DM"]),
        (["-DN=64"], "#define N 3\n", []),
        (["-DN=64"], "#undef N\n", []),
        (["-DKNOWN"], TEXT, []),
        (
            ["-D__CUDA_NO_HALF_OPERATORS__", "-DTORCH_EXTENSION_NAME=x", "-DAT_X", "-DC10_X"],
            TEXT,
            [],
        ),
        (["-DF(x)=x", "-DN=a\\b", "-DN2=a\nb", "-D2", "-D"], TEXT, []),
        (["-D_N_=64", '-DNAME="a b"'], TEXT, ["-D_N_=64", '-DNAME="a b"']),
    ],
)
def test_what_is_left_out(words: list[str], text: str, left_out: list[str]) -> None:
    assert macros.left_out(words, text, {"KNOWN"}) == left_out


def test_definitions() -> None:
    words = ["-DN=64", "-DEMPTY=", "-DFLAG", "-DKEPT=1", '-DNAME="a b"', "-O3"]
    told = macros.definitions(words, ["-DKEPT=1", "-O3"])
    assert told == '#define N 64\n#define EMPTY \n#define FLAG 1\n#define NAME "a b"\n'


def profile(folder: Path) -> CudaProfile:
    """Its host's prelude has read host.h; one front end of its level has read device.h as well."""
    nothing: Any = None
    for name, text in (
        ("host.h", "#ifdef IN_HOST\n#endif\nint PART_of_a_word;\n"),
        ("device.h", "#ifdef IN_DEVICE\n#endif\n"),
        ("prelude.h", "int PASTED;\n"),
        (PRELUDE, f'# 1 "{folder}/device.h"\n# 1 "<built-in>"\nint EXPANDED;\n'),
    ):
        (folder / name).write_text(text)
    server: Any = type("Server", (), {"folder": folder})()
    made = CudaProfile("key", nothing, [], True, (), (), nothing, "", {})
    made.host = HostPrelude(
        folder / "prelude.h", frozenset(), [], Said(""), Closure(),
        frozenset({str(folder / "host.h")}), frozenset(), Making.done("digest"),
    )  # fmt: skip
    made.lean = Level("lean", "maker", (), folder, [], nothing, server, {})
    return made


def test_what_headers_mention(tmp_path: Path) -> None:
    one = profile(tmp_path)
    names = {"IN_HOST", "IN_DEVICE", "PASTED", "EXPANDED", "PART", "NOWHERE"}
    assert macros.mentioned(names, one) == names - {"PART", "NOWHERE"}
    assert one.lean is not None
    assert one.lean.unmentioned == {"PART", "NOWHERE"}
    (tmp_path / "host.h").unlink()
    assert macros.mentioned({"NOWHERE"}, one) == set()  # it is not searched for again
    with pytest.raises(FileNotFoundError):
        macros.mentioned({"ANOTHER"}, one)


def test_parts_of_words(tmp_path: Path) -> None:
    one = profile(tmp_path)
    assert one.host is not None
    assert mentions.mentioned({"PART", "OTHER"}, mentions.of_host(one.host)) == {"PART"}
    assert mentions.mentioned(set(), ["/no/such/file"]) == set()


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["-DA", "-O3", "-DB=1", "-DA", "-DB=1"], ["-DA", "-O3", "-DB=1"]),
        (["-DA=1", "-DA=2", "-DA=1"], None),
        (["-DA", "-UA", "-DA"], None),
        (["-DA", "-D", "A", "-DA"], None),
        (["-Xcompiler", "-DA", "-DA"], None),
        (["-DA", "-Xcompiler", "-DA"], None),
        (["-DA", "-Xcompiler=-DA", "-DA"], ["-DA", "-Xcompiler=-DA"]),
    ],
)
def test_definitions_that_stand_again(words: list[str], kept: list[str] | None) -> None:
    assert macros.without_repeated(words) == (kept or words)

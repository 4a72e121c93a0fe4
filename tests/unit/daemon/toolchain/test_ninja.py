"""What compilers and linkers say they read, and the words of a build.ninja."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from warmcc.daemon.toolchain import ninja

AWKWARD = "with space $x #y"


def test_dependencies_of_a_compiler_with_awkward_names(tmp_path: Path) -> None:
    folder = tmp_path / AWKWARD
    folder.mkdir()
    (folder / "a b.h").write_text("")
    (tmp_path / "unit.cpp").write_text('#include "a b.h"\n')
    subprocess.run(
        ["g++", "-MD", "-MF", "unit.d", f"-I{folder}", "-c", "unit.cpp"],
        cwd=tmp_path,
        check=True,
        timeout=60,
    )
    assert str(folder / "a b.h") in ninja.dependencies(tmp_path / "unit.d", tmp_path)


@pytest.mark.parametrize("linker", ["mold", "lld", "gold", "bfd"])
def test_what_a_linker_read_with_awkward_names(linker: str, tmp_path: Path) -> None:
    if (
        shutil.which({"lld": "ld.lld", "gold": "ld.gold", "bfd": "ld.bfd"}.get(linker, linker))
        is None
    ):
        pytest.skip(f"{linker} is not installed")
    folder = tmp_path / AWKWARD
    folder.mkdir()
    (tmp_path / "f.cpp").write_text("int f() { return 1; }\n")
    for words in (
        ["g++", "-fPIC", "-c", "f.cpp"],
        ["ar", "rc", f"{folder}/libf.a", "f.o"],
        [
            "g++",
            f"-fuse-ld={linker}",
            "-shared",
            "f.o",
            f"{folder}/libf.a",
            "-o",
            "o.so",
            "-Wl,--dependency-file=o.d",
        ],
    ):
        subprocess.run(words, cwd=tmp_path, check=True, timeout=60)
    read = ninja.linked(tmp_path / "o.d", tmp_path)
    assert {str(tmp_path / "f.o"), f"{folder}/libf.a"} <= set(read)
    assert all(Path(path).exists() for path in read)


@pytest.mark.parametrize("word", ["plain", AWKWARD, "it's", 'a"b', "$HOME", "a:b", "ü"])
def test_shell_words_reach_the_shell_as_they_are(word: str) -> None:
    written = ninja.shell_words([word])
    assert shlex.split(written.replace("$$", "$").replace("$ ", " ").replace("$:", ":")) == [word]

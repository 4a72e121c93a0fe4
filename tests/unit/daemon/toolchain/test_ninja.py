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


@pytest.mark.parametrize("text", ["int f() { return N; }", "int f() { return missing; }"])
def test_a_unit_is_compiled_after_it_was_parsed(text: str, tmp_path: Path) -> None:
    executable = ninja.executable()
    assert executable is not None
    (tmp_path / "main.cpp").write_text(text)
    (tmp_path / "other.h").write_text("#define N 1\n")
    (tmp_path / "own.h").write_text("#define N 2\n")
    parsed = ninja.Compile(
        "main.cpp", "main.o.parsed", tmp_path / "other.h", cflags="-Wunused", parses=True
    )
    compiled = ninja.Compile("main.cpp", "main.o", headers=("own.h",), after="main.o.parsed")
    steps = ninja.Steps(
        tmp_path, ["g++"], f"-fPIC -I{tmp_path}", "", "-shared", [parsed, compiled], ["main.o"],
        "main.so",
    )  # fmt: skip
    steps.write()
    done = subprocess.run(
        steps.argv(executable, 2, []), cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode == 0) == ("missing" not in text)
    assert (
        (tmp_path / "main.so").exists() == (tmp_path / "main.o").exists() == (done.returncode == 0)
    )
    assert ("-c main.cpp -o main.o" in done.stdout) == (done.returncode == 0)
    if done.returncode == 0:
        assert str(tmp_path / "own.h") in ninja.dependencies(tmp_path / "main.o.d", tmp_path)
    else:
        assert "FAILED: " in done.stdout and "main.o.parsed" in done.stdout


def test_nothing_is_linked_for_an_object_alone(tmp_path: Path) -> None:
    executable = ninja.executable()
    assert executable is not None
    (tmp_path / "own.cpp").write_text("int f() { return 1; }\n")
    for compiles in ([ninja.Compile("own.cpp", "own.o")], []):
        steps = ninja.Steps(tmp_path, ["g++"], "-O2", "", "", compiles, ["own.o"], "own.o")
        steps.write()
        done = subprocess.run(
            steps.argv(executable, 1, []), cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert ("-c own.cpp -o own.o" in done.stdout) == bool(compiles)
        assert "shared" not in done.stdout
    assert (tmp_path / "own.o").exists()

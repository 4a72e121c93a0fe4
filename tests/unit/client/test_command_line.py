"""Compilers' command lines, as the launcher reads them."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from warmcc.client.launcher.command_line import Command, NotOurs, read


def cpp(text: str) -> Command:
    return read(shlex.split(text), is_nvcc=False)


def nvcc(text: str) -> Command:
    return read(shlex.split(text), is_nvcc=True)


def test_a_command_of_cmake() -> None:
    found = cpp(
        "-DTORCH -Da_EXPORTS -I/s -isystem /t/include -O3 -std=gnu++17 -MD -MT d/a.cpp.o "
        "-MF d/a.cpp.o.d -o d/a.cpp.o -c /s/a.cpp"
    )
    assert (found.source, found.object) == ("/s/a.cpp", "d/a.cpp.o")
    assert found.flags == [
        "-DTORCH", "-Da_EXPORTS", "-I/s", "-isystem", "/t/include", "-O3", "-std=gnu++17",
    ]  # fmt: skip
    assert found.folders == ["/s", "/t/include"] and found.system == ["/t/include"]
    assert found.depfile is not None and found.depfile.system
    assert (found.depfile.path, found.depfile.targets) == ("d/a.cpp.o.d", ["d/a.cpp.o"])


def test_a_command_of_cmake_for_nvcc(tmp_path: Path) -> None:
    includes = tmp_path / "includes.rsp"
    includes.write_text(f'-I"{tmp_path}/a b" -isystem /t/include\n')
    found = nvcc(
        f"-forward-unknown-to-host-compiler -DX --options-file {includes} -O3 -std=c++17 "
        "'--generate-code=arch=compute_90,code=[compute_90,sm_90]' -Xcompiler=-fPIC -MD -MT a.o "
        "-MF a.o.d -x cu -c /s/a.cu -o a.o"
    )
    assert found.is_cuda and found.folders == [f"{tmp_path}/a b", "/t/include"]
    assert "-gencode=arch=compute_90,code=[compute_90,sm_90]" in found.flags
    assert not {"-x", "cu", "-forward-unknown-to-host-compiler", "-MD"} & {*found.flags}


@pytest.mark.parametrize(
    ("written", "path", "targets", "system", "phony"),
    [
        ("-MMD", "b/a.d", ["b/a.o"], False, False),
        ("-MD -MMD", "b/a.d", ["b/a.o"], False, False),
        ("-MD -MFx.d", "x.d", ["b/a.o"], True, False),
        ("-MD -MF x.d -MF y.d -MP", "y.d", ["b/a.o"], True, True),
        ("-MD -MT 'a$b' -MTc", "b/a.d", ["a$b", "c"], True, False),
        ("-MD -MQ 'a$b c'", "b/a.d", ["a$$b\\ c"], True, False),
    ],
)
def test_rules_beside_objects(
    written: str, path: str, targets: list[str], system: bool, phony: bool
) -> None:
    found = cpp(f"{written} -c a.cpp -o b/a.o").depfile
    assert found is not None
    assert (found.path, found.targets) == (path, targets)
    assert (found.system, found.phony) == (system, phony)


def test_an_object_without_a_name() -> None:
    assert cpp("-c d/a.b.cpp").object == "a.b.o"
    assert cpp("-c a.cpp -oout/x.o").object == "out/x.o"


def test_nvcc_joins_words_by_a_sign() -> None:
    """What it does not know it will say itself, as the daemon does not take it either."""
    found = nvcc("-c a.cu -o=x.o -MD -MF=x.d -MT=t")
    assert (found.object, found.flags) == ("x.o", []) and found.depfile is not None
    assert (found.depfile.path, found.depfile.targets) == ("x.d", ["t"])
    assert nvcc("-c a.cu -xcu -ox.o -MFx.d").flags == ["-xcu", "-ox.o", "-MFx.d"]


def test_long_names_of_nvcc() -> None:
    long = "--generate-dependencies-with-compile --dependency-output x.d"
    found = nvcc(f"--compile --x=cu a.cu --output-file=x.o -ccbin /usr/bin/g++ {long}")
    assert found.depfile == nvcc("-c a.cu -o x.o -MD -MF x.d").depfile is not None
    assert (found.source, found.object, found.host, found.flags) == (
        "a.cu", "x.o", "/usr/bin/g++", [],
    )  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "a.cpp -o a", "-c a.cpp b.cpp", "-c a.c -o a.o", "-c -x c a.cpp", "-E -c a.cpp",
        "-c a.cpp -o",
        "-S a.cpp -o a.s", "-c -o a.o", "-c - -o a.o", "-v -c a.cpp", "-M -c a.cpp", "--version",
        "-c a.cpp -o a.o -o b.o", "-c @/nothing/there", "-c a.cpp -MF x.d", "-c -c a.cpp", "",
        "-c a.cpp -o a.cpp", "-c a.cpp -o ./a.cpp", "-c a.cpp -MD -MF a.cpp",
        "-c a.cpp -MD -MF a.o",
        "-c a.cpp -MD -MT a -MQ b", "-c a.cu", "-c a.cpp -I", "-c a.cpp -x c++",
    ],
)  # fmt: skip
def test_what_the_compiler_does(text: str) -> None:
    with pytest.raises(NotOurs):
        cpp(text)


@pytest.mark.parametrize(
    "text",
    ["-MD -MQ t -c a.cu", "-MD -MF a.d -MF b.d -c a.cu", "-c a.cu @words", "-c -G a.cu",
    "-dc a.cu -o a.o",
    "-c a.cpp", "-ptx -c a.cu", "--keep -c a.cu", "-c a.cu --dryrun",
    "-cubin a.cu", "-c a.cu -o ./a.cu"],
)  # fmt: skip
def test_what_nvcc_does(text: str) -> None:
    with pytest.raises(NotOurs):
        nvcc(text)


def test_response_files_within_themselves(tmp_path: Path) -> None:
    endless, ends = tmp_path / "endless", tmp_path / "ends"
    endless.write_text(f"@{endless}")
    ends.write_text("-c 'a b.cpp' -DX=\\\"y\\\"")
    with pytest.raises(NotOurs):
        cpp(f"@{endless}")
    assert (cpp(f"@{ends}").source, cpp(f"@{ends}").flags) == ("a b.cpp", ['-DX="y"'])

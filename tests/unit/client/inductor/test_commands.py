"""Which of Inductor's commands go to the daemon, and as what."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from warmcc.client.inductor import commands, headers, packed
from warmcc.client.inductor.way_back import Left

HEADER = "torch/csrc/inductor/cpp_prefix.h"
FLAGS = (
    "-D TORCH_INDUCTOR_CPP_WRAPPER -D  C10_USING_CUSTOM_GENERATED_MACROS -D CPU_CAPABILITY_AVX2 "
    "-O3 -DNDEBUG -fno-trapping-math -ffp-contract=off -march=native -shared -fPIC -Wall "
    "-std=c++20 -pedantic -fopenmp -I/v/torch/include -mavx2 -mfma"
)
LINK = "-ltorch -ltorch_cpu -lgomp -L/usr/lib -L/v/torch/lib"


@pytest.fixture
def left_out() -> Iterator[list[str]]:
    """Inductor's header, left out for these flags; what torch's own function was asked for."""
    asked: list[str] = []

    def original(header: str, hashable_cmd_line: str, **named: object) -> str:
        asked.append(hashable_cmd_line)
        return f"/tmp/own/{len(asked)}.h"

    headers._skipped.clear()
    replaced = headers.left_out(original)
    assert replaced(HEADER, f"g++ i {FLAGS} -o o {LINK}", vec_isa=None) == HEADER
    yield asked
    headers._skipped.clear()


def test_a_source_to_a_library(left_out: list[str]) -> None:
    line = f"g++ /t/c1.main.cpp {FLAGS} -include {HEADER} -o /t/c1.main.so {LINK}"
    found = commands.split(shlex.split(line))
    assert (found.program, found.source, found.target) == ("g++", "/t/c1.main.cpp", "/t/c1.main.so")
    assert found.forced == HEADER
    assert "-DTORCH_INDUCTOR_CPP_WRAPPER" in found.compiler
    assert "-DC10_USING_CUSTOM_GENERATED_MACROS" in found.compiler
    assert {"-I/v/torch/include", "-Wall", "-march=native", "-shared"} <= set(found.compiler)
    assert not any(word.startswith(("-l", "-L", "-include")) for word in found.compiler)
    assert [word for word in found.linker if word.startswith(("-l", "-L"))] == shlex.split(LINK)
    assert {"-shared", "-fopenmp", "-fPIC", "-march=native"} <= set(found.linker)
    assert not any(word.startswith(("-D", "-I", "-W")) for word in found.linker)
    assert left_out == []


def test_a_source_to_an_object(left_out: list[str]) -> None:
    found = commands.split(shlex.split(f"g++ /t/a.cpp {FLAGS} -include {HEADER} -c -o /t/a.o"))
    assert (found.target, found.linker) == ("/t/a.o", [])


@pytest.mark.parametrize(
    "line",
    [
        "clang++ /t/a.cpp -shared -o /t/a.so",
        "g++ /t/a.o /t/b.o -shared -o /t/a.so",
        "g++ -x c++-header /t/a.h -o /t/a.h.gch",
        "g++ /t/a.cpp -E -P -o /t/a.i",
        "g++ /t/a.cpp -g -shared -o /t/a.so",
        "g++ /t/a.cpp -o /t/a",
        "g++ /t/a.cpp -MD -c -o /t/a.o",
        "nvcc /t/a.cu -c -o /t/a.o",
    ],
)
def test_what_inductor_runs_itself(line: str) -> None:
    with pytest.raises(Left):
        commands.split(shlex.split(line))


def test_a_header_that_the_source_does_not_begin_with(left_out: list[str]) -> None:
    """Then it would be missing from the text."""
    line = f"g++ /t/a.cpp {FLAGS} -include {HEADER} -o /t/a.so {LINK}"
    with pytest.raises(Left, match="does not begin with"):
        commands.as_request(commands.split(shlex.split(line)), "#include <vector>\n")


def test_a_command_of_inductors_own_has_its_own_header(left_out: list[str]) -> None:
    """It is made for the command's flags, and once they differ it is not."""
    line = f"g++ /t/a.cpp {FLAGS} -include {HEADER} -o /t/a.so {LINK}"
    made = shlex.split(headers.with_stocks(line))
    assert made == shlex.split(line.replace(HEADER, "/tmp/own/1.h"))
    assert left_out == [f"g++ i {FLAGS} -o o {LINK}"]
    other = line.replace("-O3", "-O1")
    assert headers.with_stocks(other) == other


def test_other_headers_are_torchs(left_out: list[str]) -> None:
    replaced = headers.left_out(lambda header, line, **_: f"made {header}")
    assert replaced("mine/own.h", "g++ i -o o") == "made mine/own.h"


def test_a_request_for_any_machine(left_out: list[str]) -> None:
    """By text and flags: two machines have other folders, and so other names."""
    found = []
    for folder in ("one", "two"):
        flags = FLAGS.replace("/v/", f"/{folder}/")
        link = LINK.replace("/v/", f"/{folder}/")
        line = f"g++ /{folder}/c{folder}.cpp {flags} -o /{folder}/c{folder}.so {link}"
        text = f"#include <{HEADER}>\nint x;\n"
        request = commands.as_request(commands.split(shlex.split(line)), text)
        assert request.name == f"c{folder}.cpp" and request.cpp_sources == [text]
        found.append(packed.portable(request))
    assert found[0] == found[1]

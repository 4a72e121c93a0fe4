"""Room for g++: nothing that it writes depends on it, and where it would write it down, it does not
get it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from warmcc.config import Config
from warmcc.daemon.system import resources
from warmcc.daemon.toolchain import compiler_heap

GIB = 1 << 30
SOURCE = """
#include <regex>
#include <map>
#include <string>
bool f(const std::string& text) {
    std::map<std::string, std::regex> all{{"a", std::regex("x+y*")}};
    return std::regex_match(text, all.begin()->second);
}
"""


TINY = "int f(int x) { return x + 1; }\n"


def compiled(folder: Path, name: str, flags: list[str], source: str = TINY) -> bytes:
    (folder / "unit.cpp").write_text(source)
    subprocess.run(["g++", *flags, "-c", "unit.cpp", "-o", name], cwd=folder, check=True)
    return (folder / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags", [[], ["-O2", "-march=native", "-fopenmp", "-std=c++20"]], ids=" ".join
)
def test_the_object_is_the_same(tmp_path: Path, flags: list[str]) -> None:
    words = compiler_heap.words(flags, GIB)
    assert words == ["--param=ggc-min-heapsize=1048576"]
    given = compiled(tmp_path, "with.o", [*words, *flags], SOURCE)
    assert given == compiled(tmp_path, "without.o", flags, SOURCE)


@pytest.mark.parametrize("flag", ["-g", "-g1", "-ggdb3", "-flto", "-frecord-gcc-switches"])
def test_where_it_would_be_written_down(tmp_path: Path, flag: str) -> None:
    given = compiled(tmp_path, "with.o", ["--param=ggc-min-heapsize=1048576", flag])
    assert b"ggc-min-heapsize" in given or given != compiled(tmp_path, "without.o", [flag])
    assert compiler_heap.words(["-O2", flag], GIB) == []


def test_a_users_own_comes_later_and_counts(tmp_path: Path) -> None:
    words = [
        *compiler_heap.words([], GIB),
        "--param=ggc-min-heapsize=4096",
        "-frecord-gcc-switches",
    ]
    assert b"ggc-min-heapsize=4096" in compiled(tmp_path, "unit.o", words)


def test_as_much_as_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    def size(gibibytes: float, jobs: int, **settings: int) -> int:
        monkeypatch.setattr(resources, "memory_limit", lambda: int(gibibytes * GIB))
        return compiler_heap.size(Config(**settings), jobs)  # type: ignore[arg-type]

    assert size(24, 2) == GIB
    assert size(32, 16) == GIB // 2  # beside 1.5 GiB for each
    assert size(24, 16) == 0
    assert size(1, 1) == 0
    assert size(24, 2, compiler_heap=0) == 0
    assert size(24, 2, compiler_heap=512 << 20) == 512 << 20
    assert size(24, 2, job_memory=12 * GIB) == 0


def test_a_container_has_less_than_its_machine() -> None:
    assert 0 < resources.memory_limit() <= resources.total_memory()

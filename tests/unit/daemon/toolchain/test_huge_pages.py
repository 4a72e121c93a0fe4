"""Compilers with huge pages: what is preloaded works, changes nothing that is made, and is left out
where it would not help.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain import huge_pages
from warmcc.daemon.toolchain.huge_pages import HugePages, Without

ASKED_FOR = "always [madvise] never\n"
SOURCE = """
#include <algorithm>
#include <iostream>
#include <map>
#include <regex>
bool f(const std::string& text) { return std::regex_match(text, std::regex("x+y*")); }
int g(std::map<int, int>& all) {
  return std::count_if(all.begin(), all.end(), [](auto one) { return one.second; });
}
"""
# How much of 8 MB, asked for as a compiler does, is in huge pages
_MAPS = """
import ctypes, re
mmap = ctypes.CDLL(None).mmap
mmap.restype, mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p] + [ctypes.c_size_t] * 5
place = mmap(None, 8 << 20, 3, 0x22, 2**64 - 1, 0)
ctypes.memset(place, 1, 8 << 20)
print(sum(map(int, re.findall(r"AnonHugePages: *(\\d+)", open("/proc/self/smaps").read()))))
"""


@pytest.fixture
def mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kernel that gives huge pages to those who ask."""
    path = tmp_path / "enabled"
    path.write_text(ASKED_FOR)
    monkeypatch.setattr(huge_pages, "_MODE", path)
    monkeypatch.setattr(huge_pages, "_LONG", 60.0)
    return path


def made(folder: Path) -> HugePages:
    found = HugePages(folder / "made", wanted=True)
    assert found.reason == ""
    return found


def environment(found: HugePages) -> dict[str, str]:
    return found.added_to({**os.environ, "LC_ALL": "C"})


@pytest.mark.skipif(
    ASKED_FOR not in (huge_pages._MODE.read_text() if huge_pages._MODE.exists() else ""),
    reason="this kernel does not give huge pages to those who ask",
)
def test_memory_is_in_huge_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages, "_LONG", 60.0)
    found = HugePages(tmp_path, wanted=True)
    words = [sys.executable, "-I", "-S", "-c", _MAPS]
    said = subprocess.run(words, env=environment(found), capture_output=True, check=True).stdout
    if int(said) == 0:
        pytest.skip("this machine has no huge page left")
    assert int(said) >= 6 << 10
    plain = subprocess.run(words, capture_output=True, check=True).stdout
    assert int(plain) == 0


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["-O2", "-g"]], ids=" ".join)
def test_objects_and_messages_are_the_same(mode: Path, tmp_path: Path, flags: list[str]) -> None:
    (tmp_path / "unit.cpp").write_text(SOURCE)
    (tmp_path / "wrong.cpp").write_text(SOURCE + "int h() { return one; }\n")
    variables = environment(made(tmp_path))
    results = []
    for env in (variables, {**os.environ, "LC_ALL": "C"}):
        for source in ("unit.cpp", "wrong.cpp"):
            words = ["g++", *flags, "-c", source, "-o", "unit.o"]
            done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
            results.append((done.returncode, done.stdout, done.stderr))
        results.append((tmp_path / "unit.o").read_bytes())
    assert results[:3] == results[3:]
    assert [results[0][0], results[1][0]] == [0, 1]


@pytest.mark.slow
def test_precompiled_headers_serve_with_and_without(mode: Path, tmp_path: Path) -> None:
    (tmp_path / "all.h").write_text(SOURCE)
    (tmp_path / "unit.cpp").write_text('#include "all.h"\nint main() { return !f("xy"); }\n')
    variables = environment(made(tmp_path))
    header = ["g++", "-x", "c++-header", "all.h", "-o", "all.h.gch"]
    unit = ["g++", "-Winvalid-pch", "-H", "unit.cpp", "-o", "unit"]
    for first, second in ((variables, dict(os.environ)), (dict(os.environ), variables)):
        subprocess.run(header, cwd=tmp_path, env=first, check=True)
        done = subprocess.run(unit, cwd=tmp_path, env=second, capture_output=True, text=True)
        assert done.returncode == 0 and "! all.h.gch" in done.stderr, done.stderr
        assert subprocess.run([tmp_path / "unit"]).returncode == 0


def test_it_is_kept(mode: Path, tmp_path: Path) -> None:
    made(tmp_path)
    (library,) = (tmp_path / "made").iterdir()
    before = library.stat().st_mtime_ns
    made(tmp_path)
    assert library.stat().st_mtime_ns == before
    assert list((tmp_path / "made").iterdir()) == [library]


def test_commands_of_builds_get_it(mode: Path, tmp_path: Path) -> None:
    found = made(tmp_path)
    with contextlib.closing(Runner(prepared=found.added_to)) as runner:
        done = asyncio.run(
            runner.run(
                ["/bin/sh", "-c", 'echo "$LD_PRELOAD $GLIBC_TUNABLES"'], cwd=tmp_path,
                environment={"PATH": os.defpath}, timeout=20,
            )
        )  # fmt: skip
    (library,) = (tmp_path / "made").iterdir()
    assert done.output.split() == [str(library), "glibc.malloc.hugetlb=1"]


def test_variables_of_the_callers_stay(mode: Path, tmp_path: Path) -> None:
    found = made(tmp_path)
    own = {"LD_PRELOAD": "/own.so"}
    assert found.added_to(own) == own
    given = found.added_to({"A": "b", "GLIBC_TUNABLES": "glibc.malloc.check=1"})
    assert given["GLIBC_TUNABLES"] == "glibc.malloc.check=1:glibc.malloc.hugetlb=1"
    assert given["A"] == "b" and Path(given["LD_PRELOAD"]).exists()
    switched_off = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}
    assert found.added_to(switched_off)["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=0"


def test_without_its_file_programs_do_not_complain(mode: Path, tmp_path: Path) -> None:
    """The loader would say on each start that it cannot preload it."""
    found = made(tmp_path)
    (library,) = (tmp_path / "made").iterdir()
    library.unlink()
    assert found.added_to({"A": "b"}) == {"A": "b"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[always] madvise never\n", "gives huge pages to all"),
        ("always madvise [never]\n", "switched off"),
        ("nothing", "says nothing"),
        ("\xff", "this kernel has none"),
        (None, "this kernel has none"),
    ],
)
def test_where_asking_is_of_no_use(mode: Path, text: str | None, reason: str) -> None:
    mode.unlink() if text is None else mode.write_text(text, encoding="latin-1")
    found = HugePages(mode.parent / "made", wanted=True)
    assert reason in found.reason
    assert found.added_to({"A": "b"}) == {"A": "b"}
    assert not (mode.parent / "made").exists()


def test_where_the_kernel_takes_long_to_give_one(
    mode: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = made(tmp_path)
    assert "LD_PRELOAD" in found.added_to({})
    monkeypatch.setattr(huge_pages, "_LONG", 0.0)
    found._next = 0.0
    found.added_to({})
    deadline = time.monotonic() + 30
    while not found.reason:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert "ms to give one" in found.reason
    assert found.added_to({}) == {}
    assert found._next > time.monotonic() + 600
    monkeypatch.setattr(huge_pages, "_LONG", 60.0)
    found._next = 0.0
    while "LD_PRELOAD" not in found.added_to({}):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_switched_off(mode: Path, tmp_path: Path) -> None:
    assert HugePages(tmp_path / "made", wanted=False).reason == "huge_pages is off"


def test_a_path_that_cannot_be_preloaded(mode: Path, tmp_path: Path) -> None:
    for name in ("with space", "a:b"):
        with pytest.raises(Without, match="LD_PRELOAD cannot name"):
            huge_pages._made(tmp_path / name)


def test_compilers_that_do_not_make_it(
    mode: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "bin" / "cc"
    compiler.parent.mkdir()
    monkeypatch.setenv("PATH", str(compiler.parent))
    assert "does not work" in HugePages(tmp_path / "made", wanted=True).reason
    # What it makes is no library: each program would complain of it
    compiler.write_text('#!/bin/sh\nwhile [ "$1" ] && [ "$1" != -o ]; do shift; done\n'
                        '[ "$2" ] && echo no library >"$2"\n/bin/true\n')  # fmt: skip
    compiler.chmod(0o755)
    found = HugePages(tmp_path / "made", wanted=True)
    assert "cannot be preloaded" in found.reason
    assert found.added_to({}) == {}

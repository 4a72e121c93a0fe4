"""Random command lines, by the launcher and by the compiler: the exit code, what was said, and the
files that were left have to be the same. ``WARMCC_COMMANDS`` says how many, ``WARMCC_SEED`` which.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
from pathlib import Path

import pytest

from tests.integration.client.test_launcher import bin_folder, includes, run
from tests.support.daemons import Daemon

__all__ = ["bin_folder"]
COMMANDS = int(os.environ.get("WARMCC_COMMANDS", "25"))
SEED = int(os.environ.get("WARMCC_SEED", "0")) or random.randrange(1, 10**6)
SOURCES = {
    "a.cpp": (
        '#include <c10/macros/Macros.h>\n#include "own.h"\n'
        "int f(int x) { int y; return x + OWN; }\n"
    ),
    "b c.cc": "#include <c10/util/Exception.h>\nvoid g() { TORCH_CHECK(true); }\n",
    "wrong.cpp": "#include <c10/macros/Macros.h>\nint f() { return missing; }\n",
    "lacks.cxx": "#include <c10/no/such.h>\n",
    "plain.cpp": "const char* name() { return __FILE__; }\n",
    "empty.cpp": "",
    "c.c": "int h(void) { return 1; }\n",
}
FLAGS = [
    "-O1", "-O2", "-O0", "-g", "-g0", "-Wall", "-Wextra", "-Werror", "-w", "-fPIC",
    "-DOWN=3",
    "-D OWN=4", "-UNDEBUG", "-DX='a b'", "-std=c++17", "-std=gnu++20", "-std=nonsense", "-fopenmp",
    "-fvisibility=hidden", "-I.", "-Isub", "-I sub", "-iquote sub", "-include own.h", "-Wno-unused",
    "-include missing.h", "-march=native", "-ffast-math", "-fno-exceptions", "-m64", "-pedantic",
    "-unknown-flag", "-Wunknown", "-save-temps=obj", "-fsyntax-only", "-fstack-usage", "-x c++",
    "-x c", "-Wl,-z,now", "-lm", "-Winvalid-pch", "-fdiagnostics-color=never", "-fmax-errors=1",
    "-ftime-trace", "-flto", "-S", "-E", "-MD", "-MMD", "-MF d.d", "-MT t", "-MQ 't$x'", "-MP",
    "-MD -MF deep/d.d", "-MD -MF none/d.d",
    "@words.rsp", "@none.rsp", "-c", "-o", "-", "--version", "-###",
    "-Wp,-DP=1",
    "-ffile-prefix-map=/tmp=/x", "-fdebug-prefix-map=/tmp=/x", "-fmacro-prefix-map=/tmp=/x",
    "-nostdinc",
    "-shared", "-static", "-Xlinker -s", "-Xassembler -g", "--param max-inline-insns-auto=9",
    "--coverage",
]  # fmt: skip
OBJECTS = [
    "a.o", "sub/x.o", "o p.o", "none/x.o", "/dev/null", "sub", "a.cpp", "./plain.cpp", "old.o",
    "link.o", "twin.o",
]  # fmt: skip

# What ``env`` may be given
VARIABLES = [
    "DEPENDENCIES_OUTPUT=said.d", "'DEPENDENCIES_OUTPUT=said.d target'",
    "SUNPRO_DEPENDENCIES=said.d", "GCC_EXTRA_DIAGNOSTIC_OUTPUT=fixits-v1",
    "CPATH=sub", "CPLUS_INCLUDE_PATH=.", "SOURCE_DATE_EPOCH=1", "TMPDIR=/none", "TMPDIR=sub",
    "COMPILER_PATH=/none", "GCC_EXEC_PREFIX=/none/", "LC_ALL=C", "GCC_COLORS=", "COLUMNS=40",
    "CCACHE_DISABLE=1", "GCC_COMPARE_DEBUG=", "COLLECT_GCC_OPTIONS=x", "CXXFLAGS=-O3", "PWD=/tmp",
    "-u HOME",
]  # fmt: skip
PLACES = ["", "./", "sub/../", "$PWD/"]


def made_up(chance: random.Random) -> str:
    """A command line behind the compiler's name, as a shell's text."""
    sources = chance.choices(list(SOURCES), k=chance.choice([1, 1, 1, 1, 1, 1, 2, 0]))
    words = [f"{chance.choice(PLACES)}'{name}'" for name in sources] + chance.sample(
        FLAGS, chance.randrange(5)
    )
    words += ["-c"] * (chance.random() < 0.95)
    words += [f"-o '{chance.choice(OBJECTS)}'"] * (chance.random() < 0.8)
    words += [" ".join(f"'{word}'" for word in includes())] * (chance.random() < 0.9)
    chance.shuffle(words)
    return " ".join(words)


def world(folder: Path) -> Path:
    for name in ("sub", "deep"):
        (folder / name).mkdir(parents=True)
    for name, text in SOURCES.items():
        (folder / name).write_text(text)
    (folder / "own.h").write_text("#pragma once\n#ifndef OWN\n#define OWN 1\n#endif\n")
    (folder / "words.rsp").write_text("-DOWN=7 '-DY=a b'\n")
    for name in ("old.o", "deep/target.o", "twin.o"):
        (folder / name).write_text("of another compile")
    (folder / "link.o").symlink_to("deep/target.o")
    os.link(folder / "twin.o", folder / "deep" / "twin.o")
    return folder


def left(folder: Path, command: str, code: int) -> dict[str, bytes]:
    """The files that were left, and what is in them. Debugging information names the source in
    another way, and link-time code and counters have stamps. A rule says only that it is there: its
    content has tests, and where there was a mistake nobody reads it. Of a source, whether it was
    written over."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not path.is_file() or (path.suffix == ".d" and code != 0):
            continue
        if path.name in SOURCES:
            found[name] = path.read_bytes()[:4]
            continue
        found[name] = b""
        stamped = any(flag in command for flag in ("-flto", "--coverage", "-Xassembler -g"))
        if path.suffix not in (".d", ".gcno") and not stamped:
            if "-g" in command.split():
                subprocess.run(["strip", "-g", path], capture_output=True)
            found[name] = path.read_bytes()
    return found


@pytest.mark.timeout(3600)
def test_random_command_lines(daemon: Daemon, tmp_path: Path, bin_folder: Path) -> None:
    chance = random.Random(SEED)
    for number in range(COMMANDS):
        before = f"env {chance.choice(VARIABLES)} " if chance.random() < 0.2 else ""
        command = f"g++ {made_up(chance)}"
        told = {}
        for side, prefix in (("theirs", ""), ("ours", "warmcc ")):
            place = world(tmp_path / f"{number}" / "here")
            answer = run(["sh", "-c", before + prefix + command], place, daemon, bin_folder)
            said = re.sub(r"(?:/tmp|sub)/cc\w+", "cc", answer.stderr)
            code = answer.returncode
            told[side] = code, answer.stdout, said, left(place, command, code)
            (tmp_path / f"{number}" / "here").rename(tmp_path / f"{number}" / side)
        assert told["ours"] == told["theirs"], (
            f"WARMCC_SEED={SEED}, command {number}: {before}{command}"
        )

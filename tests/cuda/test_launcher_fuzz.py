"""Random command lines of nvcc, by the launcher and by nvcc: the exit code, what was said, the
files that were left, and the code in them have to be the same. ``WARMCC_COMMANDS`` says how many,
``WARMCC_SEED`` which.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.client.test_launcher import bin_folder, includes, run
from tests.integration.client.test_objects import code_of
from tests.support import device_code
from tests.support.cuda import CudaDaemon

__all__ = ["bin_folder"]
pytestmark = pytest.mark.ci
COMMANDS = int(os.environ.get("WARMCC_COMMANDS", "6"))
SEED = int(os.environ.get("WARMCC_SEED", "0")) or random.randrange(1, 10**6)
KERNEL = "__global__ void scale(float* x) { x[threadIdx.x] *= OWN; }\n"
SOURCES = {
    "a.cu": f"""#include <c10/macros/Macros.h>
#include "own.cuh"
{KERNEL}
namespace {{ __global__ void hidden(int* x) {{ __shared__ int y[32]; y[*x] = 1; *x = y[0]; }} }}
void launch(float* x, int* y) {{ int unused; scale<<<1, 32>>>(x); hidden<<<1, 32>>>(y); }}
""",
    "b c.cu": """#include <c10/util/complex.h>
template <class T> __global__ void fill(T* x) { int unused; x[blockIdx.x] = T(1); }
template __global__ void fill<double>(double*);
static __device__ int counter;
__global__ void count() { atomicAdd(&counter, 1); }
const char* file() { return __FILE__; }
""",
    "wrong.cu": "#include <c10/macros/Macros.h>\nint f() { return missing; }\n",
    "wrong device.cu": (
        "#include <c10/macros/Macros.h>\nint host();\n__global__ void f(int* x) { *x = host(); }\n"
    ),
    "wrong ptx.cu": (
        '#include <c10/macros/Macros.h>\n__global__ void f() { asm("nonsense %r1;"); }\n'
    ),
    "lacks.cu": "#include <c10/no/such.h>\n",
    "plain.cu": f"#define OWN 5\n{KERNEL}",
    "empty.cu": "",
    "host.cpp": "#include <c10/macros/Macros.h>\nint f() { return __COUNTER__; }\n",
}
USUAL = [
    "-O0", "-O1", "-O2", "-O3", "-G", "-g", "-lineinfo", "-DOWN=3", "-D OWN=4", "-DX='a b'",
    "-UNDEBUG", "--define-macro OWN=6", "-std=c++17", "-std=c++20", "--std=c++17", "-I.", "-Isub",
    "-isystem sub", "--include-path=sub", "-include own.cuh", "-arch=sm_90", "-arch sm_80",
    "-gencode arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=sm_90",
    "--generate-code=arch=compute_90,code=[compute_90,sm_90]",
    "-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=compute_90",
    "-Xcompiler -fPIC", "-Xcompiler=-fPIC,-Wall", "-Xcompiler '-O1 -Wextra'", "-Xptxas -v",
    "-Xptxas=-O1", "--ptxas-options=-v", "-maxrregcount=32", "--use_fast_math",
    "--expt-relaxed-constexpr", "--expt-extended-lambda", "-forward-unknown-to-host-compiler",
    "-diag-suppress 177", "--threads 2", "-t2", "-MD", "-MMD", "-MD -MF d.d", "-MD -MT t -MF d.d",
    "-MD -MF deep/d.d", "-MMD -MQ 't$x' -MP", "-x cu", "-x=cu", "-m64", "-w",
    "--options-file words.rsp", "--options-file=words.rsp", "-optf words.rsp",
]  # fmt: skip
ODD = [
    "-std=nonsense", "-include missing.cuh", "-arch=compute_90", "-arch=sm_1", "-gencode nonsense",
    "-Xcompiler -Wno-such", "-Xcompiler -fno-such", "-Xcompiler -fopenmp", "-Xptxas -nonsense",
    "--compiler-options=-fvisibility=hidden", "-Xcudafe --nonsense", "-ftz=true", "-restrict",
    "-Xcudafe --display_error_number", "-fPIC", "-Wall", "-Werror all-warnings", "-MF d.d", "-MT t",
    "-MP", "-M", "-MM", "--generate-dependencies-with-compile", "-MD --dependency-output e.d",
    "--generate-nonsystem-dependencies-with-compile", "--dependency-output=e.d", "-optf none.rsp",
    "-x c++", "-dc", "-dw", "-ptx", "-cubin", "-fatbin", "-E", "-c", "--compile", "-rdc=true",
    "-rdc=false", "-unknown-flag", "--version", "-ccbin g++", "-ccbin=/usr/bin/g++", "-ccbin none",
    "-cudart shared", "-lcudart", "-Lsub", "-default-stream per-thread", "--resource-usage",
    "-src-in-ptx -lineinfo", "-Xfatbin -compress-all", "-compress-mode=size", "-time t.csv",
    "-dryrun", "--keep-dir sub", "-xcu", "-op.o", "-MD -MFx.d", "-MD -MTt", "@words.rsp",
    "-MD -MF none/d.d",
    "-MD -MF d.d -MF e.d", "-optf=words.rsp,words.rsp", "--x cu", "-MQ t", "--std c++17",
    "'' ", "-o", "-D", "-gencode", "-Xcompiler",
]  # fmt: skip
OBJECTS = ["a.o", "a.o", "a.o", "a.o", "sub/x.o", "o p.o", "none/x.o", "/dev/null", "sub"]
_SIDE_BY_SIDE = re.compile(r" -t ?\d| --threads")
# Names of what nvcc has in between, and of its modules, are of a process; times are new each time
_PASSING = re.compile(
    r"tmpxft_[0-9a-f]+_[0-9a-f]+-?\d*|/tmp/cc\w+|(?<=Compile time = )[\d.]+"
    r"|[0-9a-f]{8}_\d+_\w+?_cu_[0-9a-f]{8}|(?<=__)\d+\b"
)

_MACHINE, _X86_64 = 18, b"\x3e\x00"  # in the header of an ELF file


@pytest.fixture(scope="module")
def daemon(nvcc: str) -> Iterator[CudaDaemon]:
    started = CudaDaemon(cuda_warm=False)
    try:
        started.start()
        yield started
        started.stop()
    finally:
        started.discard()


def made_up(chance: random.Random) -> str:
    """A command line behind nvcc's name, as a shell's text."""
    sources = chance.choices(list(SOURCES), [5, 5, 2, 2, 2, 1, 1, 1, 1])
    if chance.random() < 0.1:
        sources = chance.choices(list(SOURCES), k=chance.choice([0, 2]))
    # A relative name is left to nvcc: its objects say how the source was called
    words = [chance.choice(["", *['"$PWD"/'] * 4]) + f"'{name}'" for name in sources]
    words += chance.sample(USUAL, chance.randrange(5))
    words += chance.sample(ODD, chance.choice([0, 0, 0, 1, 2]))
    words += ["-c"] * (chance.random() < 0.95)
    words += [f"-o '{chance.choice(OBJECTS)}'"] * (chance.random() < 0.8)
    words += [" ".join(f"'{word}'" for word in includes())] * (chance.random() < 0.95)
    chance.shuffle(words)
    return " ".join(words)


def world(folder: Path) -> Path:
    for name in ("sub", "deep"):
        (folder / name).mkdir(parents=True)
    for name, text in SOURCES.items():
        (folder / name).write_text(text)
    (folder / "own.cuh").write_text("#pragma once\n#ifndef OWN\n#define OWN 2\n#endif\n")
    (folder / "words.rsp").write_text("-DOWN=7 '-DY=a b'\n")
    return folder


def left(folder: Path, command: str, status: int) -> dict[str, object]:
    """The files that were left, with the code that is in an object. A rule says only that it is
    there: its content has tests, and where there was a mistake nothing reads it. Of sources side by
    side, that mistake may come before another one's object or after it, with nvcc as well."""
    found: dict[str, object] = {}
    unsure = {".d"} | ({".o"} if _SIDE_BY_SIDE.search(command) else set())
    for path in sorted(folder.rglob("*")):
        is_unsure = status != 0 and path.suffix in unsure
        if path.name in SOURCES or not path.is_file() or is_unsure:
            continue
        found[str(path.relative_to(folder))] = code(path) if path.suffix == ".o" else ""
    return found


def code(path: Path) -> object:
    """Of the host and of the devices; a text as it is."""
    data = path.read_bytes()
    if data.isascii():
        return _PASSING.sub("", data.decode())
    told = device_code.extract(path, check=False)
    devices = {kind: _PASSING.sub("", text) for kind, text in told.items()}
    if data[:4] != b"\x7fELF" or data[_MACHINE : _MACHINE + 2] != _X86_64:
        return devices
    host = code_of(path)
    return devices, {_PASSING.sub("", name): _PASSING.sub("", text) for name, text in host.items()}


@pytest.mark.timeout(36000)
def test_random_command_lines(
    nvcc: str, daemon: CudaDaemon, tmp_path: Path, bin_folder: Path
) -> None:
    chance = random.Random(SEED)
    wrong = []
    for number in range(COMMANDS):
        command = f"{nvcc}/bin/nvcc {made_up(chance)}"
        told = {}
        for side, prefix in (("theirs", ""), ("ours", "warmcc ")):
            place = world(tmp_path / f"{number}" / "here")
            answer = run(["sh", "-c", prefix + command], place, daemon, bin_folder)
            said = [_PASSING.sub("", text) for text in (answer.stdout, answer.stderr)]
            told[side] = answer.returncode, *said, left(place, command, answer.returncode)
            (tmp_path / f"{number}" / "here").rename(tmp_path / f"{number}" / side)
        if told["ours"] != told["theirs"]:
            differing = [
                pair
                for pair in zip(told["theirs"], told["ours"], strict=True)
                if pair[0] != pair[1]
            ]
            wrong.append(f"WARMCC_SEED={SEED}, command {number}: {command}\n{differing}")
    assert not wrong, "\n\n".join(wrong)

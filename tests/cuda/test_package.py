"""An object that is compiled without its machine code and assembled with it is the same, byte for
byte.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from warmcc.daemon.cuda import dryrun as nvccs
from warmcc.daemon.cuda import machine_code
from warmcc.daemon.toolchain import cuda

UNIT = """
static __constant__ float weights[4];
namespace { __device__ int hidden; __managed__ int shared; }
__global__ void add(float* p) { p[threadIdx.x] += weights[0] + hidden + NUMBER; }
template <class T> __global__ void fill(T* p) {
  p[threadIdx.x] = NUMBER + shared;
}
__global__ void move(float* p) {
  struct Step {
    int number;
    __device__ Step() : number(NUMBER) {}
    __device__ int next() { return number++ + NUMBER; }
  } step;
  auto twice = [&](int by) { return 2 * step.next() + by; };
  p[threadIdx.x] += twice(NUMBER);
}
extern "C" int run(float* p) {
    add<<<1, 2>>>(p); fill<float><<<1, 2>>>(p); move<<<1, 2>>>(p); return __LINE__;
}
"""


class Toolkit:
    """nvcc's plan for a unit, run step by step in a folder."""

    def __init__(self, home: str, folder: Path, flags: list[str]) -> None:
        self.folder = folder
        compiler = f"{home}/bin/nvcc"
        (folder / nvccs.UNIT).write_text(UNIT)
        shown = subprocess.run(
            nvccs.command(compiler, flags), cwd=folder, check=True, capture_output=True, text=True
        ).stderr
        top = cuda.variables(shown)
        self.plan = nvccs.parse(shown, {"CICC_PATH": top["CICC_PATH"]})
        self._environment = {
            **os.environ,
            "PATH": f"{top['CICC_PATH']}:{home}/bin:{os.environ['PATH']}",
        }
        (folder / nvccs.MODULE_ID).write_text(nvccs.NO_MODULE_ID)

    def run(self, words: list[str]) -> None:
        subprocess.run(words, cwd=self.folder, env=self._environment, check=True, timeout=120)

    def front(self, number: int) -> None:
        """All but the host's compile, of the unit with this number."""
        (self.folder / nvccs.UNIT).write_text(UNIT.replace("NUMBER", str(number)))
        plan = self.plan
        self.run(plan.preprocess.words)
        self.run(plan.cudafe.words)
        for device in plan.devices:
            for step in (device.preprocess, device.cicc, *device.ptxas):
                self.run(step.words)
        self.run(plan.fatbinary.words)

    def read(self) -> list[str]:
        """What the host's compiler reads of a unit whose package has been taken out, left without
        kernels' bodies.
        """
        source = self.folder / self.plan.host.input
        stub = self.folder / self.plan.cudafe.stub
        for path in (source, stub):
            path.write_text(machine_code.without_bodies(path.read_text()))
        packed = self.folder / machine_code.name(self.plan)
        return [path.read_text() for path in (source, stub, packed)]


@pytest.mark.parametrize(
    "flags", [[], ["-O3", "-gencode=arch=compute_80,code=sm_80", "-Xcompiler", "-fPIC"]]
)
def test_the_object_is_the_same(nvcc: str, tmp_path: Path, flags: list[str]) -> None:
    toolkit = Toolkit(nvcc, tmp_path, ["-gencode=arch=compute_90,code=sm_90", "-std=c++17", *flags])
    compiling, assembling = machine_code.steps(toolkit.plan.host, [], "made.o")
    seen = []
    for number in (1, 2):
        toolkit.front(number)
        toolkit.run(toolkit.plan.host.words)
        machine_code.take_out(tmp_path, machine_code.name(toolkit.plan))
        seen.append(toolkit.read())
        if number == 1:  # the edit of the bodies takes what was compiled of the first
            toolkit.run(compiling)
        toolkit.run(assembling)
        assert (tmp_path / "made.o").read_bytes() == (tmp_path / "cuda.o").read_bytes()
        (tmp_path / "made.o").rename(tmp_path / f"made{number}.o")
    assert seen[0] == seen[1]
    assert (tmp_path / "made1.o").read_bytes() != (tmp_path / "made2.o").read_bytes()


@pytest.mark.parametrize("word", ["-g", "-ggdb3", "-flto", "-flto=auto", "-Wa,-L", "-v"])
def test_what_is_about_the_whole_compile_stays_one_step(word: str) -> None:
    host = nvccs.NvccCommand(("gcc", "-c", "-x", "c++", word), "cuda.cudafe1.cpp", "cuda.o")
    with pytest.raises(machine_code.Whole, match=word):
        machine_code.steps(host, [], "made.o")


def test_a_package_in_another_form_is_left_alone(tmp_path: Path) -> None:
    text = (
        'asm(\n"fatbinData:\\n"\n".byte 0x00\\n"\n".text\\n");\n'
        "extern const unsigned long long fatbinData[1];\n"
    )
    (tmp_path / "cuda.fatbin.c").write_text(text)
    with pytest.raises(machine_code.Whole, match="in another way"):
        machine_code.take_out(tmp_path, "cuda.fatbin.c")
    assert (tmp_path / "cuda.fatbin.c").read_text() == text


@pytest.mark.parametrize(
    "text",
    [
        'const char* code = R"(\n#if 0\nkept\n#endif\n)";\n',
        "#if 0\n{ }\n#else\nint kept;\n#endif\n",
        "#if 0\nint without_an_end;\n",
    ],
)
def test_what_may_not_be_skipped_is_kept(text: str) -> None:
    assert machine_code.without_bodies(text) == text

"""A project with a CUDA source, compiled in one folder and then in another: what nvcc makes there.
Code for a device that names its file is compiled again.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cuda.test_launcher import daemon
from tests.integration.client.test_elsewhere import counts
from tests.integration.client.test_launcher import bin_folder, includes, run
from tests.support.cuda import CudaDaemon
from tests.support.host_code import code_of

__all__ = ["bin_folder", "daemon"]
pytestmark = pytest.mark.ci
SOURCE = """#include <c10/util/Exception.h>
#include "own.cuh"
static __global__ void scale(float* x) { x[threadIdx.x] *= FACTOR; }
extern "C" int launch(float* x, int size) {
  TORCH_CHECK(size > 0, "it is ", size);
  scale<<<1, size>>>(x);
  return cudaGetLastError();
}
"""
KERNEL = "static __global__ void scale(float* x) { x[threadIdx.x] *= FACTOR; }"
NAMELESS = f"namespace {{ {KERNEL.removeprefix('static ')} }}"  # nvcc gives it the path's digest


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "first-of-two"
    folder.mkdir()
    (folder / "a.cu").write_text(SOURCE)
    (folder / "own.cuh").write_text("#define FACTOR 2\n")
    return folder


def words(nvcc: str, folder: Path, *flags: str) -> list[str]:
    architectures = [f"-gencode=arch=compute_{one},code=sm_{one}" for one in (80, 90)]
    return [
        f"{nvcc}/bin/nvcc", *includes(), *architectures, "-std=c++17", "-Xcompiler=-fPIC", *flags,
        "-c", str(folder / "a.cu"), "-o", "a.o",
    ]  # fmt: skip


def made(folder: Path, name: str) -> tuple[dict[str, str], bytes]:
    """An object's functions for the host, and its code for devices."""
    place = folder / f"{name}.fatbin"
    argv = ["objcopy", "-O", "binary", "-j", ".nv_fatbin", f"{folder}/{name}.o", str(place)]
    subprocess.run(argv, check=True)
    code = code_of(folder / f"{name}.o")
    named = {re.sub(r"tmpxft_\w+?_\w+?_", "", function): text for function, text in code.items()}
    return named, place.read_bytes()


@pytest.mark.parametrize(
    ("flags", "change", "is_taken"),
    [
        (["-O3"], ("", ""), True),
        ([], ("", ""), True),
        (["-O3"], ("x[threadIdx.x] *=", "assert(x[0] > 1); x[threadIdx.x] *="), False),
        (["-O3"], ("*= FACTOR", "*= sizeof(__FILE__)"), False),
        (["-O3"], (KERNEL, NAMELESS), False),
        (["-O3", "-lineinfo"], ("", ""), False),
    ],
    ids=["O3", "plain", "an assertion on the device", "the name's size", "no name", "lines"],
)  # fmt: skip
def test_a_project_in_another_folder(
    nvcc: str, daemon: CudaDaemon, project: Path, bin_folder: Path, flags: list[str],
    change: tuple[str, str], is_taken: bool,
) -> None:  # fmt: skip
    source = project / "a.cu"
    source.write_text("#include <cassert>\n" + source.read_text().replace(*change))
    first = run(["warmcc", *words(nvcc, project, *flags)], project, daemon, bin_folder)
    assert first.returncode == 0, first.stderr
    folder = project.parent / "the-second-one-with-a-longer-name"
    folder.mkdir()
    for name in ("a.cu", "own.cuh"):
        shutil.copy(project / name, folder)
    compiled, taken = counts(daemon)
    theirs = run(words(nvcc, folder, *flags), folder, None, bin_folder)
    assert theirs.returncode == 0, theirs.stderr
    (folder / "a.o").rename(folder / "theirs.o")
    ours = run(["warmcc", *words(nvcc, folder, *flags)], folder, daemon, bin_folder)
    assert (ours.returncode, ours.stderr) == (0, theirs.stderr)
    assert counts(daemon) == (compiled + (not is_taken), taken + is_taken)
    assert str(project).encode() not in (folder / "a.o").read_bytes()
    if not is_taken:  # a module's name is made up by the daemon
        return
    (host, device), (their_host, their_device) = made(folder, "a"), made(folder, "theirs")
    assert device == their_device
    assert host.keys() == their_host.keys()
    if flags:
        assert host == their_host

"""``warmcc nvcc``, with a command line as CMake writes it: what nvcc makes, says and leaves."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.client.test_launcher import bin_folder, counts, includes, run
from tests.support.cuda import CudaDaemon
from warmcc.daemon.toolchain import ninja

__all__ = ["bin_folder"]
pytestmark = pytest.mark.ci
# As torch (to 2.10) and flashinfer name them
LONG = {
    "-MD": "--generate-dependencies-with-compile", "-MF": "--dependency-output",
    "-c": "--compile", "-o": "--output-file",
}  # fmt: skip
SOURCE = """#include <c10/util/Exception.h>
#include "own.cuh"
__global__ void scale(float* x) { x[threadIdx.x] *= FACTOR; }
extern "C" int launch(float* x) { int unused; scale<<<1, 32>>>(x); return cudaGetLastError(); }
"""


@pytest.fixture(scope="module")
def daemon(nvcc: str) -> Iterator[CudaDaemon]:
    started = CudaDaemon(cuda_warm=False)
    try:
        started.start()
        yield started
        started.stop()
    finally:
        started.discard()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.cu").write_text(SOURCE)
    (tmp_path / "own.cuh").write_text("#define FACTOR 2\n")
    (tmp_path / "includes.rsp").write_text(" ".join(includes()))
    return tmp_path


def command(nvcc: object, folder: Path, source: str = "a.cu") -> list[str]:
    return [
        f"{nvcc}/bin/nvcc", "-forward-unknown-to-host-compiler", "-DX=1", "--options-file",
        "includes.rsp", "-O3",
        "-DNDEBUG", "-std=c++17", "--generate-code=arch=compute_90,code=[compute_90,sm_90]",
        "-Xcompiler=-fPIC", "-MD", "-MT", "a.o", "-MF", "a.d", "-x", "cu", "-c",
        str(folder / source), "-o", "a.o",
    ]  # fmt: skip


def test_a_command_of_cmake(nvcc: str, daemon: CudaDaemon, folder: Path, bin_folder: Path) -> None:
    words = command(nvcc, folder)
    theirs = run(words, folder, None, bin_folder)
    assert theirs.returncode == 0, theirs.stderr
    (folder / "a.d").rename(folder / "theirs.d")
    (folder / "a.o").rename(folder / "theirs.o")
    hits, misses = counts(daemon)
    for number in (1, 2):
        ours = run(["warmcc", *words], folder, daemon, bin_folder)
        assert (ours.returncode, ours.stdout, ours.stderr) == (0, "", theirs.stderr)
        assert counts(daemon) == (hits + number - 1, misses + 1)
        read = set(ninja.dependencies(folder / "a.d", folder))
        assert set(ninja.dependencies(folder / "theirs.d", folder)) <= read
        assert (folder / "a.o").stat().st_size > 0
        (folder / "a.o").unlink()
    rule = (folder / "a.d").read_text()
    (folder / "a.d").unlink()
    words = [LONG.get(word, word) for word in words]
    ours = run(["warmcc", *words], folder, daemon, bin_folder)
    assert (ours.returncode, counts(daemon)) == (0, (hits + 2, misses + 1))
    assert (folder / "a.d").read_text() == rule


def test_torchs_own_load(daemon: CudaDaemon, folder: Path, bin_folder: Path) -> None:
    (folder / "built").mkdir()
    program = (
        "import sys; from torch.utils.cpp_extension import load; "
        "load('launched', ['a.cu'], build_directory='built', is_python_module=False)"
    )
    hits, misses = counts(daemon)
    variables = {"PYTORCH_NVCC": "warmcc nvcc", "WARMCC_FALLBACK": "0"}
    for number in (1, 2):
        done = run([sys.executable, "-c", program], folder, daemon, bin_folder, **variables)
        assert done.returncode == 0, done.stderr
        assert counts(daemon) == (hits + number - 1, misses + 1)
        (folder / "built" / "a.cuda.o").unlink()


def test_a_source_in_a_folder_that_holds_assembler(
    nvcc: str, daemon: CudaDaemon, folder: Path, bin_folder: Path
) -> None:
    """The assembler lists a name of nvcc's for it, which is no file that it read."""
    (folder / "src").mkdir()
    (folder / "own.cuh").rename(folder / "src/own.cuh")
    (folder / "src/own.cuh").write_text('#define FACTOR 3\nasm(".text");\n')
    (folder / "src/a.cu").write_text(SOURCE)
    words = ["warmcc", *command(nvcc, folder, "src/a.cu"), "-Xcompiler=-g"]
    hits, misses = counts(daemon)
    for number in (0, 1):
        ours = run(words, folder, daemon, bin_folder)
        assert ours.returncode == 0, ours.stderr
        assert counts(daemon) == (hits + number, misses + 1)


def test_nvcc_behind_another_of_that_name(
    nvcc: str, daemon: CudaDaemon, folder: Path, bin_folder: Path
) -> None:
    """nvcc looks for its toolkit by its name, in PATH if that has no folder."""
    (folder / "bin").mkdir()
    (folder / "bin/nvcc").write_text("#!/bin/sh\nexit 77\n")
    (folder / "bin/nvcc").chmod(0o755)
    path = f"{bin_folder}:{folder / 'bin'}:/usr/bin:/bin"
    words = ["warmcc", "nvcc", *command(nvcc, folder)[1:]]
    for more in ([], ["-rdc=true"]):
        ours = run([*words, *more], folder, daemon, bin_folder, PATH=path, CUDA_HOME=nvcc)
        assert (ours.returncode, ours.stdout) == (0, ""), ours.stderr


def test_a_mistake(nvcc: str, daemon: CudaDaemon, folder: Path, bin_folder: Path) -> None:
    (folder / "a.cu").write_text(SOURCE.replace("FACTOR;", "MISSING;"))
    words = command(nvcc, folder)
    theirs = run(words, folder, None, bin_folder)
    ours = run(["warmcc", *words], folder, daemon, bin_folder)
    assert (ours.returncode, ours.stderr) == (theirs.returncode, theirs.stderr)
    assert ours.returncode != 0 and not (folder / "a.o").exists()


def test_a_compiler_for_the_host(
    nvcc: str, daemon: CudaDaemon, folder: Path, bin_folder: Path
) -> None:
    """It compiles the host's part, and only where it is named, also with ``CC`` set."""
    host = folder / "host-g++"
    host.write_text('#!/bin/sh\nexec g++ -DOF_HOST=7 "$@"\n')
    host.chmod(0o755)
    (folder / "a.cu").write_text(SOURCE.replace("cudaGetLastError()", "OF_HOST"))
    _, misses = counts(daemon)
    for named in (["-ccbin", str(host)], [f"--compiler-bindir={host}"]):
        ours = run(["warmcc", *command(nvcc, folder), *named], folder, daemon, bin_folder)
        assert (ours.returncode, ours.stdout) == (0, ""), ours.stderr
        assert counts(daemon)[1] == misses + 1
    words = ["env", f"CC={host}", "warmcc", *command(nvcc, folder)]
    without = run(words, folder, daemon, bin_folder)
    assert without.returncode != 0 and "OF_HOST" in without.stderr


def test_what_is_not_understood_is_nvccs(
    nvcc: str, daemon: CudaDaemon, folder: Path, bin_folder: Path
) -> None:
    _, misses = counts(daemon)
    for more in (["--keep", "--keep-dir", "."], ["-rdc=true"], ["--no-such-flag"]):
        words = [*command(nvcc, folder), *more]
        theirs = run(words, folder, None, bin_folder)
        ours = run(["warmcc", *words], folder, daemon, bin_folder)
        assert (ours.returncode, ours.stderr) == (theirs.returncode, theirs.stderr)
    assert counts(daemon)[1] == misses

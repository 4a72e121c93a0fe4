"""nvcc's own steps, the host's half beside the devices': the same result as nvcc's, the same words
when it fails.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import warmcc
from tests.support import device_code
from tests.support.cuda import CudaDaemon, overlap, spans_of_last
from tests.support.daemons import running
from warmcc import module_names
from warmcc.client.connection import session
from warmcc.daemon.cuda import dryrun
from warmcc.daemon.cuda.dryrun import UnknownPlan
from warmcc.daemon.cuda.exact import nvcc_steps
from warmcc.errors import CompileError, DaemonUnavailable

pytestmark = pytest.mark.ci

# Templates, a static in an unnamed namespace and a warning, in its own header; a device symbol; a
# macro by the flags.
HEADER = """#pragma once
#include <cmath>
#include <vector>
namespace { __device__ float weights[4] = {1, 2, 3, FOUR}; }
template <typename T, int N> __global__ void scale(T* x) {
    x[threadIdx.x] *= weights[N] + sqrtf(N);
}
"""
UNIT = """#include "own.cuh"
namespace { struct Local { int n; }; }
__global__ void add(float* x, Local local) { x[threadIdx.x] += local.n; }
extern "C" int run(float* x) {
    std::vector<int> sizes(3);
    scale<float, 2><<<1, 32>>>(x);
    add<<<1, 32>>>(x, Local{(int)sizes.size()});
    return __LINE__;
}
"""
FLAGS = ["-O2", "-DFOUR=4", "--use_fast_math", "-lineinfo"]
_numbers = itertools.count(int(time.time()))


@pytest.fixture(scope="module")
def daemons(nvcc: str) -> Iterator[dict[bool, CudaDaemon]]:
    """With the steps side by side, and without; nothing is warm in either."""
    made = {on: CudaDaemon(cuda_warm=False, cuda_side_by_side=on) for on in (True, False)}
    running.extend(made.values())
    try:
        for daemon in made.values():
            daemon.start()
        yield made
        for daemon in made.values():
            daemon.stop()
    finally:
        for daemon in made.values():
            running.remove(daemon)
            daemon.discard()


class Package:
    """A unit with a header of its own, built by either daemon."""

    def __init__(
        self, folder: Path, daemons: dict[bool, CudaDaemon], patch: pytest.MonkeyPatch
    ) -> None:
        self.unit, self.header = folder / "unit.cu", folder / "own.cuh"
        self.unit.write_text(f"// {next(_numbers)}\n{UNIT}")
        self.header.write_text(HEADER)
        self._daemons = daemons
        self._patch = patch

    def load(self, on: bool, flags: list[str] = FLAGS, **more: Any) -> Path:
        for name, value in self._daemons[on].environment.items():
            self._patch.setenv(name, value)
        session.forget()
        named = {"extra_cuda_cflags": flags, "is_python_module": False, **more}
        return Path(warmcc.load("side", [str(self.unit)], **named))

    def counted(self, on: bool) -> dict[str, Any]:
        found: dict[str, Any] = self._daemons[on].cuda()
        return found


@pytest.fixture
def package(
    tmp_path: Path, daemons: dict[bool, CudaDaemon], monkeypatch: pytest.MonkeyPatch
) -> Package:
    return Package(tmp_path, daemons, monkeypatch)


def symbols(library: Path) -> str:
    """The host's code, by its instructions, without the module's names."""
    done = subprocess.run(
        ["objdump", "-d", "--no-addresses", "--no-show-raw-insn", "-j", ".text", str(library)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    text = module_names.without("\n".join(done.stdout.split("\n")[3:]))
    text = re.sub(r"_Z\d+(?=__device_stub__)", "_Z", text)  # names inside of which are a module's
    return re.sub(
        r"-?0x[0-9a-f]+(?=\(%rip\))|#.*", "", text
    )  # places, which the lengths of names move


@pytest.mark.parametrize("architectures", ["9.0", "8.0;9.0+PTX"])
def test_the_result_is_nvccs(
    package: Package, architectures: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", architectures)
    before = package.counted(True)
    ours, theirs = package.load(True), package.load(False)
    after = package.counted(True)
    assert after["used"]["exact"] == before["used"].get("exact", 0) + 1
    assert after["not_faster"] == before["not_faster"]  # nothing was left to nvcc
    assert not device_code.differing(device_code.extract(ours), device_code.extract(theirs))
    assert symbols(ours) == symbols(theirs) != ""


@pytest.mark.parametrize(
    "flags",
    [
        ['-DTEXT=\\"a/b\\"'], ["-DTEXT='\"two words\"'"], ['-DTEXT=\\"100%\\"', "-DEMPTY="],
        ['-DTEXT=\\"~\\"'], ['-DTEXT=\\"c\\"', "-Xcompiler", "-DHOST=1,-O1"],
    ],
)  # fmt: skip
def test_quotes_in_flags_mean_what_they_mean_to_nvcc(package: Package, flags: list[str]) -> None:
    """What one of the two refuses, the other one does as well."""
    package.unit.write_text(
        f'{package.unit.read_text()}extern "C" const char* text() {{ return TEXT; }}\n'
    )
    found: list[bytes | str | None] = []
    for on in (True, False):
        try:
            function = ctypes.CDLL(str(package.load(on, ["-DFOUR=4", *flags]))).text
        except (CompileError, DaemonUnavailable) as error:
            found.append(type(error).__name__)
            continue
        function.restype = ctypes.c_char_p
        found.append(function())
    assert found[0] == found[1]


def test_what_it_read_is_known(package: Package) -> None:
    first = package.load(True)
    assert package.load(True) == first
    package.header.write_text(HEADER.replace("FOUR", "5"))
    assert package.load(True) != first


def test_both_halves_run_at_a_time(package: Package, daemons: dict[bool, CudaDaemon]) -> None:
    package.load(True)
    spans = spans_of_last(daemons[True])
    host = [span for span in spans if span.step == "cudafe++"]
    devices = [span for span in spans if span.step in ("cicc", "ptxas")]
    assert host
    assert devices
    if daemons[True].status()["permits"]["limit"] > 1:
        assert overlap(host, devices)


def test_one_job_has_them_one_after_the_other(
    package: Package, daemons: dict[bool, CudaDaemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_JOBS", "1")
    package.load(True)
    spans = spans_of_last(daemons[True])
    host = [span for span in spans if span.step == "cudafe++"]
    assert not overlap(host, [span for span in spans if span.step in ("cicc", "ptxas")])


@pytest.mark.parametrize(
    "mistake",
    [
        "__global__ void wrong(int* x) { x[0] = undefined_name; }",
        "void wrong() { undefined_name(); }",
        "#include <no/such/header.h>",
        '__global__ void wrong() { asm("no such instruction;"); }',
        "void wrong() {",
        "__device__ int wrong() { throw 1; }",
        "#pragma unroll\nint unused_variable_at_the_end;\n#error stop here",
    ],
)
def test_mistakes_are_told_in_nvccs_words(package: Package, mistake: str) -> None:
    package.unit.write_text(f"{package.unit.read_text()}{mistake}\n")
    told = []
    for on in (True, False):
        with pytest.raises(CompileError) as caught:
            package.load(on)
        told.append(str(caught.value).partition("FAILED:")[2])
    assert "error" in told[0]
    assert dryrun._TEMPORARY.sub("", told[0]) == dryrun._TEMPORARY.sub("", told[1])


def test_warnings_are_nvccs(package: Package, capfd: pytest.CaptureFixture[str]) -> None:
    package.unit.write_text(
        f"{package.unit.read_text()}static int never_used() {{ int inner; return 1; }}\n"
    )
    told = []
    for on in (True, False):
        package.load(on, verbose=True)
        told.append(
            [
                line
                for line in capfd.readouterr().out.splitlines()
                if "warning" in line or "never" in line
            ]
        )
    assert told[0] == told[1]
    assert any("warning" in line for line in told[0])


def test_a_killed_step_is_run_again(package: Package, daemons: dict[bool, CudaDaemon]) -> None:
    killed = []

    def kill() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not killed:
            for process in psutil.Process(daemons[True].pid).children(recursive=True):
                with contextlib.suppress(psutil.Error, ProcessLookupError):
                    if process.name() in ("cicc", "cudafe++"):
                        os.kill(process.pid, signal.SIGKILL)
                        killed.append(process.pid)
                        return

    killer = threading.Thread(target=kill)
    killer.start()
    made = package.load(True)
    killer.join()
    assert killed
    assert not device_code.differing(
        device_code.extract(made), device_code.extract(package.load(False))
    )


# ---------------------------------------------------------------------- the list itself


@pytest.fixture
def shown(nvcc: str, tmp_path: Path) -> str:
    (tmp_path / "unit.cu").write_text("")
    words = [
        "-gencode=arch=compute_80,code=sm_80",
        "-gencode=arch=compute_90,code=[compute_90,sm_90]",
    ]
    done = subprocess.run(
        [f"{nvcc}/bin/nvcc", "--dryrun", *words, "-MD", "-MF", "unit.d", "-c", "unit.cu", "-o",
            "unit.o"],
        cwd=tmp_path, env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    return done.stderr


def test_halves_wait_only_for_what_they_read(shown: str, tmp_path: Path) -> None:
    steps = nvcc_steps.parse(shown, tmp_path, "unit.o").steps
    by_half = {
        half: [place for place, step in enumerate(steps) if step.half == half]
        for half in ("host", "device")
    }
    for half, others in (("host", by_half["device"]), ("device", by_half["host"])):
        assert all(steps[place].after.isdisjoint(others) for place in by_half[half])
    assert steps[-1].after == frozenset(range(len(steps) - 1))
    packer = next(step for step in steps if step.name == "fatbinary")
    assert {steps[place].name for place in packer.after} == {"ptxas", "cicc"}
    for step in steps:
        if step.name in ("cicc", "ptxas", "cudafe++"):
            assert len(step.after) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda shown, folder: shown.replace("cudafe++ ", "cudafe-- "),
        lambda shown, folder: shown + "#$ nvlink a -o b\n",
        lambda shown, folder: shown.replace("#$ ptxas", "#$ tee /etc/passwd; ptxas"),
        lambda shown, folder: shown.replace(f'-o "{folder}', '-o "/elsewhere'),
        lambda shown, folder: shown.replace("--module_id_file_name", "--other_file_name"),
        lambda shown, folder: "",
        lambda shown, folder: shown.replace('"unit.cu"', '"$(unit.cu)"'),
    ],
)
def test_what_is_not_known_is_left_to_nvcc(shown: str, tmp_path: Path, change: Any) -> None:
    with pytest.raises(UnknownPlan):
        nvcc_steps.parse(change(shown, tmp_path), tmp_path, "unit.o")


def test_a_module_has_one_name_and_two_have_two() -> None:
    assert nvcc_steps.module_name("/a/b/my-unit.cu", "x") == nvcc_steps.module_name(
        "/a/b/my-unit.cu", "x"
    )
    assert nvcc_steps.module_name("/a/b/my-unit.cu", "x") != nvcc_steps.module_name(
        "/a/b/my-unit.cu", "y"
    )
    assert module_names._OWN_NAME.fullmatch(nvcc_steps.module_name("/a/b/my-unit.cu", "x"))

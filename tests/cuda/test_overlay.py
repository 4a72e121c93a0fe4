"""Behind the lean prelude every public header of torch that kernels include still compiles, each in
a unit of its own.

In place of nvcc's front ends g++ reads them: it says the same of names that are missing or
ambiguous, in a second each.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import sysconfig
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from warmcc.daemon.cuda.overlay import overlay

# Uses of what a name's own header declares, where the header alone would not show that it is whole.
USES = {
    "torch/factories/tensor.h": "at::Tensor f() { return torch::tensor({1.0f, 2.0f}); }",
    "torch/factories/arange.h": "at::Tensor f() { return torch::arange(3); }",
    "torch/checks/TensorArg.h": "void f(const at::Tensor& x) {"
    ' at::TensorArg x_arg{x, "x", 1}; at::checkAllSameGPU("f", {x_arg, x_arg}); }',
    "ATen/cuda/CUDAEvent.h": "void f() { at::cuda::CUDAEvent event; event.record(); }",
    "c10/cuda/CUDAGuard.h": "void f() { c10::cuda::CUDAGuard guard(0); at::cuda::CUDAGuard "
    "other(0); }",
    "ATen/cuda/CUDAContext.h": "cudaStream_t f() { return at::cuda::getCurrentCUDAStream(); }",
}
OPERATORS_APART = 40  # one in so many of ATen/ops


class Behind:
    """g++ behind a prelude: the overlay's, or the real headers of the same names."""

    def __init__(self, folder: Path, torch_dir: Path, toolkit: str, front: Path | None) -> None:
        import torch

        include = torch_dir / "include"
        packages = Path(torch.__file__).parent.parent
        own = sorted(str(path.parent) for path in packages.glob("nvidia/*/include/cusparse.h"))
        places = [
            *([str(front)] if front else []),
            str(include),
            str(include / "torch/csrc/api/include"),
        ]
        places += [f"{toolkit}/include", *own, sysconfig.get_paths()["include"]]
        self.words = [
            "g++",
            "-std=c++20",
            "-w",
            "-x",
            "c++",
            *itertools.chain(*(("-isystem", p) for p in places)),
        ]
        self.prelude = folder / "prelude.h"
        folder.mkdir()
        self.prelude.write_text("".join(f"#include <{name}>\n" for name in overlay.PRELUDE))
        words = [
            *self.words[:3],
            "-x",
            "c++-header",
            *self.words[5:],
            str(self.prelude),
            "-o",
            f"{self.prelude}.gch",
        ]
        subprocess.run(words, check=True)

    def complains(self, name: str) -> str:
        """What g++ says of a unit that includes a header; nothing when it compiles."""
        text = f"#include <{name}>\n{USES.get(name, '')}\n"
        words = [*self.words, "-fsyntax-only", "-include", str(self.prelude), "-"]
        done = subprocess.run(words, input=text, capture_output=True, text=True)
        return (
            "\n".join(line for line in done.stderr.splitlines() if "error" in line)[:500]
            if done.returncode
            else ""
        )


def names(torch_dir: Path, front: Path) -> list[str]:
    include = torch_dir / "include"
    found = [
        str(path.relative_to(include))
        for place in ("ATen/cuda", "c10/cuda")
        for path in (include / place).glob("*.h")
    ]
    for place in ("torch/factories", "torch/checks"):
        found += [str(path.relative_to(front)) for path in (front / place).glob("*.h")]
    operators = sorted(str(path.relative_to(front)) for path in (front / "ATen/ops").glob("*.h"))
    return sorted(found) + operators[::OPERATORS_APART]


def headers_of(version: str, folder: Path) -> Path:
    """The folder of a torch from PyPI that has its headers alone."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    wanted = ["--no-deps", "--only-binary=:all:", "--python-version", "3.11", f"torch=={version}"]
    subprocess.run([*pip, "--dest", folder, *wanted], check=True, timeout=900)
    (wheel,) = folder.glob("torch-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        headers = [name for name in archive.namelist() if name.startswith("torch/include/")]
        archive.extractall(folder, headers)
    wheel.unlink()
    return folder / "torch"


@pytest.mark.slow
@pytest.mark.parametrize("version", ["installed", "2.4.1", "2.8.0"])
def test_each_public_header_compiles_behind_the_lean_prelude(
    version: str, tmp_path: Path, nvcc: str
) -> None:
    """Those of torch 2.4 have more in ``torch/types.h``, and a body with two beginnings."""
    import torch

    is_installed = version == "installed"
    torch_dir = Path(torch.__file__).parent if is_installed else headers_of(version, tmp_path)
    front = tmp_path / "overlay"
    overlay.write(str(torch_dir), front)
    lean = Behind(tmp_path / "lean", torch_dir, nvcc, front)
    asked = names(torch_dir, front)
    assert len(asked) > 80
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        complaints = {
            name: said
            for name, said in zip(asked, threads.map(lean.complains, asked), strict=True)
            if said
        }
    if doubtful := {
        name for name in complaints if name not in USES and not name.startswith("torch/")
    }:
        real = Behind(
            tmp_path / "real", torch_dir, nvcc, None
        )  # what does not compile there is nobody's fault
        for name in filter(real.complains, doubtful):
            del complaints[name]
    assert complaints == {}

"""A setup.py with CUDA sources, under ``warmcc exec``: torch's folders come with -I, nvcc gets
--threads, and there are headers of the package's own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cuda import CudaDaemon, compared, levels, new_number

pytestmark = [pytest.mark.ci, pytest.mark.timeout(1800)]

SETUP = """
import os
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

flags = ["-O3", "--use_fast_math", "--threads", "4", "-Xfatbin", "-compress-all"]
extension = CUDAExtension(
    "pack_cuda", ["src/bind.cpp", "src/one.cu", "src/two.cu"],
    include_dirs=[FOLDER, "nowhere"], extra_compile_args={"cxx": [], "nvcc": flags},
)
setup(name="pack", ext_modules=[extension], cmdclass={"build_ext": BuildExtension})
"""
WITHOUT_NINJA = SETUP.replace("BuildExtension}", "BuildExtension.with_options(use_ninja=False)}")
OWN = """#pragma once
#include <torch/extension.h>
at::Tensor one(at::Tensor x);
at::Tensor two(at::Tensor x);
"""
BIND = """#include "own.h"
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("one", &one); m.def("two", &two); }
"""
UNIT = """#include "own.h"
__global__ void scale_NAME(const float* x, float* y, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = NUMBER.0f * x[i];
}
at::Tensor NAME(at::Tensor x) {
  TORCH_CHECK(x.is_cuda(), "NAME: x must be on the GPU");
  auto y = at::empty_like(x);
  scale_NAME<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
"""


def unit(name: str) -> str:
    return UNIT.replace("NAME", name).replace("NUMBER", str(new_number()))


def build(folder: Path, **variables: str) -> str:
    """What it printed."""
    words = [sys.executable, "-m", "warmcc.client.cli", "exec", "--", sys.executable, "setup.py"]
    done = subprocess.run(
        [*words, "build_ext", "--inplace", "--force"], cwd=folder,
        env={**os.environ, **variables, "WARMCC_FALLBACK": "0"},
        capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def linked(folder: Path) -> bytes:
    """The library in ``folder`` without what is for debuggers: Python's own flags have ``-g``, with
    which g++ names the folder where it runs.
    """
    (library,) = folder.glob("*.so")
    subprocess.run(["strip", "--strip-debug", "-o", folder / "stripped", library], check=True)
    return (folder / "stripped").read_bytes()


@pytest.mark.parametrize(
    ("setup", "names", "variables"),
    [
        (SETUP, "{folder}/src/two.cu", {}), (WITHOUT_NINJA, "src/two.cu", {}),
        (SETUP, "{folder}/src/two.cu", {"CC": "gcc", "CXX": "g++"}),
    ],
    ids=["ninja", "setuptools", "compilers"],
)  # fmt: skip
def test_units_of_a_setup_py_are_lean(
    client: CudaDaemon, tmp_path: Path, setup: str, names: str, variables: dict[str, str]
) -> None:
    """Without ninja, files are named from the working directory, and objects name them so. Where
    ``CC`` is set, torch adds ``-ccbin``."""
    relative = setup == WITHOUT_NINJA
    (tmp_path / "src").mkdir()
    own = '"src"' if relative else 'os.path.abspath("src")'
    (tmp_path / "setup.py").write_text(setup.replace("FOLDER", own))
    texts = {"own.h": OWN, "bind.cpp": BIND, "one.cu": unit("one"), "two.cu": unit("two")}
    for name, text in texts.items():
        (tmp_path / "src" / name).write_text(text)
    before, samples = levels(client), compared(client)
    assert "warning #" not in build(tmp_path, **variables), "of the lean prelude"
    made = linked(tmp_path)
    assert b"\0" + names.format(folder=tmp_path).encode() + b"\0" in made
    assert (str(tmp_path).encode() in made) != relative
    assert levels(client, before) == {"lean": 2}, client.cuda()["not_faster"]
    code = "import torch, pack_cuda; pack_cuda.two(torch.ones(2))"
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "two: x must be on the GPU" in done.stderr, done.stderr

    if relative:
        preludes = set(client.cache_dir.rglob("host/*/prelude.h"))
        shutil.copytree(tmp_path / "src", tmp_path / "again" / "src")
        shutil.copy(tmp_path / "setup.py", tmp_path / "again")
        build(tmp_path / "again", **variables)
        made = linked(tmp_path / "again")
        assert b"\0src/two.cu\0" in made and str(tmp_path).encode() not in made
        assert preludes and set(client.cache_dir.rglob("host/*/prelude.h")) == preludes

    if setup != SETUP or variables:
        return  # one sample of what a maker makes is enough for the daemon

    now = compared(client, after=samples)
    assert set(now) == {"CUDA same"}, f"machine code differs from nvcc's:\n{client.log()[-6000:]}"
    (tmp_path / "src" / "one.cu").write_text(unit("one"))
    build(tmp_path, **variables)
    assert levels(client, before) == {"lean": 3}


def preludes(daemon: CudaDaemon) -> set[Path]:
    """Those of the host that are ready."""
    return {path.parent for path in daemon.cache_dir.glob("cuda/host/*/profile")}


def test_a_first_package_finds_what_was_made_when_the_daemon_was_idle(
    nvcc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = CudaDaemon(prewarm_cuda=True, prewarm_idle=["setup.py -O3"])
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)
    text = SETUP.replace("FOLDER", 'os.path.abspath("src")').replace('"src/bind.cpp", ', "")
    (tmp_path / "setup.py").write_text(text)
    (tmp_path / "src").mkdir()
    for name, text in {"own.h": OWN, "one.cu": unit("one"), "two.cu": unit("two") + BIND}.items():
        (tmp_path / "src" / name).write_text(text)
    try:
        daemon.start()
        warm = [sys.executable, "-m", "warmcc.client.cli", "warm", "--idle"]
        subprocess.run(warm, check=True, timeout=900)
        kept, before = preludes(daemon), levels(daemon)
        assert len(kept) == 4, "with torch, without, for cuda_runtime.h, and that one"
        build(tmp_path)
        assert sum(levels(daemon, before).values()) == 2
        assert preludes(daemon) == kept, daemon.log()
        daemon.stop()
    finally:
        daemon.discard()

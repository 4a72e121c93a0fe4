"""Other versions of torch, each in an environment of its own: what warmcc builds computes what
stock's does, by a daemon that runs on that torch. ``make test-torch`` runs all parity tests with
one of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import warmcc

TOP = Path(warmcc.__file__).parents[1]
VERSIONS = ["2.4.1", "2.6.0", "2.8.0", "2.10.0", "2.13.0", "2.15.0"]
NEEDS = ["inotify-simple", "msgspec", "ninja", "psutil", "pyzmq", "rich", "watchdog"]
CALLS = '''
import sys, torch, warmcc
from torch.utils.cpp_extension import load_inline

assert torch.__version__.split("+")[0] == sys.argv[1], torch.__version__
PLAIN = "torch::Tensor f(torch::Tensor x, double by) { return x * by + 1; }"
OWN = """
#include <torch/extension.h>
at::Tensor twice(const at::Tensor& x) { return x + x; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("twice", &twice, py::arg("x"), "Twice."); }
"""
OPERATOR = """
#include <torch/library.h>
at::Tensor halved(const at::Tensor& x) { return x / 2; }
TORCH_LIBRARY(NAMESPACE, m) { m.def("halved(Tensor x) -> Tensor", &halved); }
"""
x = torch.arange(6.0).reshape(2, 3)
for side, build in (("stock", load_inline), ("ours", warmcc.load_inline)):
    plain = build(f"plain_{side}", PLAIN, functions=["f"])
    print(plain.f(x, 3.0).tolist(), plain.f.__doc__)
    own = build(f"own_{side}", OWN, extra_cflags=["-O2"])
    print(own.twice(x=x).tolist(), own.twice.__doc__)
    text = OPERATOR.replace("NAMESPACE", f"ops_{side}")
    build(f"operator_{side}", text, is_python_module=False)
    print(getattr(torch.ops, f"ops_{side}").halved(x).tolist())
    try:
        build(f"wrong_{side}", PLAIN.replace("by + 1", "bye"), functions=["f"])
    except RuntimeError as error:
        assert "bye" in str(error), error
    else:
        raise AssertionError("it was compiled")
    print("--")
again = warmcc.load_inline("plain_ours", PLAIN, functions=["f"])
assert again.f(x, 3.0).tolist() == plain.f(x, 3.0).tolist()
'''


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, as it holds a socket's folder, and not of pytest's, which keeps the last ones: torch
    has some gigabytes."""
    made = Path(tempfile.mkdtemp(prefix="wcc-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def python_with(torch: str, folder: Path) -> Path:
    """The Python of a new environment that has this torch; skips where it cannot be had."""
    python = folder / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
    numpy = "numpy<2" if torch.startswith("2.4.") else "numpy"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    done = subprocess.run(
        [*pip, f"torch=={torch}", numpy, "setuptools<81", *NEEDS], capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip(f"torch {torch} cannot be installed: {done.stderr.splitlines()[-1:]}")
    return python


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("version", VERSIONS)
def test_what_it_builds_computes_what_stocks_does(version: str, folder: Path) -> None:
    if shutil.disk_usage(folder).free < 12 << 30:
        pytest.skip("torch needs some gigabytes, and so do precompiled headers")
    python = python_with(version, folder)
    environment = {
        **os.environ, "PYTHONPATH": str(TOP), "HOME": str(folder), "WARMCC_FALLBACK": "0",
        "WARMCC_AUTOSTART": "1", "WARMCC_PREWARM": "", "WARMCC_PREWARM_CUDA": "0",
        "TORCH_EXTENSIONS_DIR": str(folder / "extensions"),
        **{f"WARMCC_{kind}_DIR": str(folder / kind.lower())
           for kind in ("CACHE", "STATE", "RUNTIME")},
    }  # fmt: skip
    for kind in ("cache", "state", "runtime"):
        (folder / kind).mkdir(mode=0o700)
    try:
        done = subprocess.run(
            [str(python), "-c", CALLS, version], cwd=folder, env=environment, capture_output=True,
            text=True, timeout=2400,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        stock, ours, rest = done.stdout.split("--\n")
        assert ours == stock
        assert rest == ""
    finally:
        stop = [str(python), "-m", "warmcc.client.cli", "stop"]
        ended = subprocess.run(stop, cwd=folder, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr

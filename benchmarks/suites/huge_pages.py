"""Compilers with and without huge pages, one command alone: g++ and nvcc behind torch's headers,
and g++ making a precompiled header of ``torch/extension.h``. What stock's commands take, with
nothing warm; objects of g++ have to be the same.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from torch.utils import cpp_extension

from benchmarks.harness import Unsound, interleaved, seconds
from benchmarks.harness.results import Outcome, Target, pair
from warmcc.daemon.toolchain.huge_pages import HugePages

TITLE = "huge pages: one compile"
REPEAT = 3
SOURCES = {
    "unit.cpp": "#include <torch/extension.h>\nat::Tensor f(at::Tensor x) { return x + 1; }\n",
    "all.h": "#include <torch/extension.h>\n",
    "unit.cu": "#include <torch/types.h>\n__global__ void k(float* x) { *x = 1; }\n",
}


def commands() -> dict[str, list[str]]:
    """By what they make; nvcc's only where it is."""
    folders = [word for path in cpp_extension.include_paths() for word in ("-isystem", path)]
    folders += ["-isystem", cpp_extension.sysconfig.get_path("include", scheme="posix_prefix")]
    found = {
        "g++, torch/extension.h": ["g++", "-fPIC", "-std=c++20", "-c", "unit.cpp", "-o", "unit.o"],
        "g++, a precompiled header": [
            "g++", "-fPIC", "-std=c++20", "-x", "c++-header", "all.h", "-o", "all.h.gch",
        ],
    }  # fmt: skip
    home = os.environ.get("CUDA_HOME") or cpp_extension.CUDA_HOME
    if home is not None and (nvcc := shutil.which("nvcc", path=f"{home}/bin")) is not None:
        found["nvcc, torch/types.h"] = [
            nvcc, "-std=c++20", "--compiler-options", "-fPIC",
            "-gencode=arch=compute_90,code=sm_90", "-c", "unit.cu", "-o", "unit.cu.o",
        ]  # fmt: skip
    return {name: [*words, *folders] for name, words in found.items()}


def run(words: list[str], folder: Path, environment: Mapping[str, str]) -> float:
    started = time.perf_counter()
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    taken = time.perf_counter() - started
    if done.returncode != 0:
        raise Unsound(done.stderr[-3000:])
    return taken


def measure(repeat: int) -> Outcome:
    plain = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="wcc-bench-") as made:
        folder = Path(made)
        pages = HugePages(folder / "library", wanted=True)
        if pages.reason:
            raise Unsound(f"this machine has nothing to measure: {pages.reason}")
        for name, text in SOURCES.items():
            (folder / name).write_text(text)
        objects: dict[str, bytes] = {}

        def timed(words: list[str], environment: dict[str, str], side: str) -> Callable[[], float]:
            def sample() -> float:
                taken = run(words, folder, environment)
                if words[0] == "g++" and "unit.o" in words:
                    objects[side] = (folder / "unit.o").read_bytes()
                return taken

            return sample

        measures = {}
        for name, words in commands().items():
            measures[f"{name}: stock"] = timed(words, plain, "stock")
            measures[name] = timed(words, pages.added_to(plain), "warmcc")
        taken = interleaved(repeat, measures)
    if objects["stock"] != objects["warmcc"]:
        raise Unsound("the objects are not the same")
    found = [pair(name, taken[f"{name}: stock"], taken[name]) for name in commands()]
    targets = [
        Target(f"{one.label}: {seconds(one.warmcc.median)}, not slower", one.ratio >= 1.0)
        for one in found
    ]
    return Outcome(found[0], found[1:], targets)

"""What plans know of the GPUs where a call names no architecture: torch asks the driver, in a child
of the zygote, and later children are told.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from tests.support.calls import request
from tests.support.pages import TOP

pytestmark = pytest.mark.skipif(torch.version.cuda is None, reason="this torch knows no CUDA")
FORKS = """
import os, sys
from warmcc.daemon.plan import zygote_main
if sys.argv[1] == "as the zygote":
    torch = zygote_main.import_torch()
else:
    import torch
from torch.utils import cpp_extension
assert cpp_extension.CUDA_HOME == "/opt/cuda" and not torch.cuda.is_available.__name__ == "<lambda>"
if os.fork() == 0:
    print(torch._C._cuda_isInBadFork(), flush=True)
    os._exit(0)
os.wait()
"""
PLANS = """
import json, sys
from warmcc.daemon.plan import zygote_main
zygote_main.import_torch()
print("PLAN", json.dumps(zygote_main.plan(json.load(sys.stdin))))
"""


def run(script: str, *words: str, text: str = "", **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *words], cwd=TOP, input=text, capture_output=True, text=True,
        env={"PATH": "/usr/bin:/bin", **variables},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def planned(folder: Path, gpus: list[list[int]], **variables: str) -> dict[str, Any]:
    asked = request(cuda_sources=["__global__ void f() {}\n"], environment=variables)
    job = {
        "request": msgspec.to_builtins(asked), "arguments": ["cpp_sources", "cuda_sources"],
        "defaults": {}, "environment": variables, "scratch": str(folder), "gpus": gpus,
    }  # fmt: skip
    found: dict[str, Any] = json.loads(run(PLANS, text=json.dumps(job)).partition("PLAN")[2])
    return found


def test_a_child_of_the_zygote_may_ask_the_driver() -> None:
    """torch's module looks for GPUs at its import, where it finds CUDA: no child can then."""
    assert run(FORKS, "as the zygote", CUDA_HOME="/opt/cuda") == "False\n"
    assert run(FORKS, "as users do", CUDA_HOME="/opt/cuda") == "True\n"


def test_what_is_known_of_gpus_is_what_torch_builds_for(tmp_path: Path) -> None:
    told = planned(tmp_path, [[9, 0], [8, 6]])
    assert told["gpus"] == [[9, 0], [8, 6]]
    named = planned(tmp_path, [], TORCH_CUDA_ARCH_LIST="8.6;9.0+PTX")
    assert told["ninja"] == named["ninja"] and "compute_90,code=sm_90" in told["ninja"]

"""Calls that name no architecture: torch asks the GPUs for theirs, in the daemon's plans as well.
nvcc is in PATH, by which torch looks for GPUs as soon as its module is imported.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from tests.support.cuda import HOME
from tests.support.daemons import Daemon

SCRIPT = """
import sys, torch, warmcc
source = '''
__global__ void fill(float* x) { x[threadIdx.x] = NUMBER; }
torch::Tensor filled(torch::Tensor x) { fill<<<1, 32>>>(x.data_ptr<float>()); return x; }
'''.replace("NUMBER", sys.argv[1])
built = warmcc.build_inline("filled", "torch::Tensor filled(torch::Tensor x);", source,
                            functions=["filled"])
print({kernel.architecture for kernel in built.kernels()})
print(built.load().filled(torch.zeros(32).cuda()).tolist() == [float(sys.argv[1])] * 32)
"""


@pytest.mark.parametrize("variables", [{}, {"TORCH_CUDA_ARCH_LIST": ""}], ids=["none", "empty"])
def test_they_are_those_of_the_gpus(daemon: Daemon, variables: dict[str, str]) -> None:
    """The first plan asks, the next one is told."""
    left = {name: value for name, value in os.environ.items() if name != "TORCH_CUDA_ARCH_LIST"}
    path = os.pathsep.join([f"{HOME}/bin", os.environ["PATH"]])
    environment = {**left, **daemon.environment, "CUDA_HOME": HOME, "PATH": path,
                   "WARMCC_FALLBACK": "0", **variables}  # fmt: skip
    wanted = "sm_{}{}".format(*torch.cuda.get_device_capability())
    for number in ("7", "8"):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, number], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"{ {wanted} }\nTrue\n"

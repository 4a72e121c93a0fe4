"""CUDA units by the daemon that systemd started: the unit's restrictions leave nvcc and the fork
servers their work.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from tests.support import machines
from tests.support.cuda import is_warming

CLIENT = """
import torch, warmcc
source = '''
__global__ void twice(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 2.f;
}
torch::Tensor run(torch::Tensor x) {
  TORCH_CHECK(x.is_cuda(), "no GPU");
  twice<<<1, 32>>>(x.data_ptr<float>(), 32);
  return x;
}
'''
declared = "torch::Tensor run(torch::Tensor x);"
module = warmcc.load_inline("twice", declared, cuda_sources=source, functions=["run"])
try:
    module.run(torch.ones(32))
except RuntimeError as error:
    print("no GPU" in str(error), module.__file__)
"""


def test_units_are_compiled_lean_under_systemd() -> None:
    with machines.booted("WARMCC_PREWARM= WARMCC_PREWARM_CUDA=1") as machine:

        def status() -> dict[str, Any]:
            report = machine.run(
                sys.executable, "-m", "warmcc.client.cli", "status", "--json"
            ).stdout
            found: dict[str, Any] = json.loads(report)
            return found

        machine.run("systemctl", "start", "warmcc@root")
        deadline = time.monotonic() + 400
        while (now := status())["prewarming"] or any(
            map(is_warming, now["accelerators"]["cuda"]["profiles"])
        ):
            assert time.monotonic() < deadline, json.dumps(now["accelerators"]["cuda"])
            time.sleep(1)
        before = now["accelerators"]["cuda"]["used"].get("lean", 0)  # warming up builds one, too
        built = machine.run(
            sys.executable, "-c", CLIENT, WARMCC_AUTOSTART="0", WARMCC_FALLBACK="0"
        ).stdout.split()
        assert built[0] == "True"
        assert built[1].startswith("/var/cache/warmcc/root/store/artifacts/")
        assert status()["accelerators"]["cuda"]["used"] == {"lean": before + 1}
        machine.run("systemctl", "stop", "warmcc@root")
        assert (
            machine.run(
                "systemctl", "show", "--value", "-p", "Result", "warmcc@root"
            ).stdout.strip()
            == "success"
        )

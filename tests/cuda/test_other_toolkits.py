"""Other versions of the CUDA toolkit than the machine's, from PyPI: their programs name files
and order words otherwise, and their headers have more in them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cuda import CudaDaemon, build, compared, levels, new_toy, refuses_a_cpu_tensor

# The wheels of a version, and CCCL's beside it
VERSIONS = {
    "13.2": "13.2.86",  # names made absolute, and a kernel's template in torch's headers
    "13.5": "13.3.5.0.6",  # an option behind the file that a front end reads
}
_WHEELS = ("nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt", "nvidia-cuda-runtime")


@pytest.fixture(params=VERSIONS)
def toolkit(nvcc: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Its folder; headers that the wheels lack are those of this machine's toolkit."""
    version = request.param
    wanted = [f"{name}=={version}.*" for name in _WHEELS]
    wanted.append(f"nvidia-cuda-cccl=={VERSIONS[version]}")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--target", tmp_path, *wanted], check=True, timeout=600)
    found = tmp_path / "nvidia/cu13"
    (found / "lib64").symlink_to("lib")
    (found / "lib/libcudart.so").symlink_to("libcudart.so.13")
    for header in Path(nvcc, "include").iterdir():
        if not (found / "include" / header.name).exists():
            (found / "include" / header.name).symlink_to(header)
    return str(found)


@pytest.mark.slow
def test_units_are_lean_and_as_nvccs(toolkit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils import cpp_extension

    daemon = CudaDaemon(prewarm_cuda=True, sample_after=0.5)
    daemon.environment["CUDA_HOME"] = toolkit
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", toolkit)
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)
    try:
        daemon.start()
        daemon.wait_for_cuda()
        before, samples = levels(daemon), compared(daemon)
        assert refuses_a_cpu_tensor(build("toolkit", "#include <torch/types.h>\n" + new_toy()))
        assert levels(daemon, before) == {"lean": 1}, daemon.log()
        assert compared(daemon, after=samples) == {"CUDA same": samples.get("CUDA same", 0) + 1}, (
            daemon.status()["accelerators"]
        )
        daemon.stop()
    finally:
        daemon.discard()

"""Other versions of the CUDA toolkit than the machine's, from PyPI: their programs name files
and order words otherwise, and their headers have more in them.
"""

from __future__ import annotations

import shutil
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


@pytest.fixture
def asking_toolkit(nvcc: str, tmp_path: Path) -> str:
    """This machine's, of which a header that nvcc includes on the host asks whether
    ``__CUDA_ARCH__`` is defined, as it does until CUDA 12."""
    found = tmp_path / "toolkit"
    for folder in ("bin", "include/crt"):
        shutil.copytree(Path(nvcc, folder), found / folder)
    for path in (Path(nvcc, "include"), Path(nvcc)):
        for entry in path.iterdir():
            place = found / entry.relative_to(nvcc)
            if not place.exists():
                place.symlink_to(entry.resolve())
    (found / "targets").unlink()
    (found / "targets/x86_64-linux").mkdir(parents=True)
    (found / "targets/x86_64-linux/include").symlink_to(found / "include")
    (found / "targets/x86_64-linux/lib").symlink_to(found / "lib64")
    with (found / "include/crt/host_defines.h").open("a") as header:
        header.write("#if defined(__CUDA_ARCH__)\n#define WARMCC_ASKED\n#endif\n")
    return str(found)


@pytest.mark.slow
def test_units_are_lean_and_as_nvccs(toolkit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lean_and_as_nvccs(toolkit, monkeypatch)


@pytest.mark.slow
def test_a_header_asks_whether_there_is_a_device(
    asking_toolkit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lean_and_as_nvccs(asking_toolkit, monkeypatch)


def lean_and_as_nvccs(toolkit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit is lean, behind a precompiled header that g++ accepts."""
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
        same = {"CUDA same": samples.get("CUDA same", 0) + 1}
        accelerators = daemon.status()["accelerators"]
        assert compared(daemon, after=samples) == same, accelerators
        assert accelerators["cuda"]["not_faster"] == {}
        daemon.stop()
    finally:
        daemon.discard()

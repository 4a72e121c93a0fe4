"""GPUs: for which ones an artifact has code, and which ones this machine has.

The driver is asked by NVML, which leaves CUDA as it is: a process that has begun to use CUDA cannot
fork any more.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import re
import shutil
import subprocess
from typing import NamedTuple

_LISTED = re.compile(r"^(?:ELF|PTX) file\s+\d+: .*?\.?(sm_\d+[af]?)\.(cubin|ptx)", re.M)
_CODE = re.compile(r"code=\[?\"?'?((?:(?:sm|compute)_\d+[af]?,?)+)")
_ARCHITECTURE = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")


def cuobjdump() -> str | None:
    """The toolkit's, or Triton's, which comes with torch."""
    triton = importlib.util.find_spec("triton")
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    places = [os.path.join(home, "bin"), os.environ.get("PATH", "")]
    if triton is not None and triton.origin is not None:
        places.append(os.path.join(os.path.dirname(triton.origin), "backends/nvidia/bin"))
    return shutil.which("cuobjdump", path=os.pathsep.join(places))


def in_file(path: str, commands: list[str]) -> list[str]:
    """The architectures of the machine code (``sm_90``) and PTX (``compute_90``) in a file: as
    cuobjdump lists them, else as ``-gencode`` has them in the commands that built it."""
    program = cuobjdump()
    if program is not None:
        done = subprocess.run(
            [program, "--list-elf", "--list-ptx", path],
            capture_output=True, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode == 0 and (found := listed(done.stdout)):
            return found
    codes = (code for command in commands for code in _CODE.findall(command))
    return sorted({one for code in codes for one in code.strip(",").split(",")})


def listed(output: str) -> list[str]:
    r"""The architectures in cuobjdump's lists.

    >>> listed("ELF file    1: k.1.sm_90a.cubin\nPTX file    1: k.1.sm_80.ptx\n")
    ['compute_80', 'sm_90a']
    """
    return sorted(
        {
            name if kind == "cubin" else name.replace("sm_", "compute_")
            for name, kind in _LISTED.findall(output)
        }
    )


class Gpus(NamedTuple):
    """The compute capabilities of a machine's GPUs, and the CUDA version of its driver."""

    capabilities: list[tuple[int, int]]
    driver: tuple[int, int]


def mismatch(architectures: list[str], cuda: str, here: Gpus | None) -> str:
    """Why no GPU here can run the code of an artifact, if that is so. ``cuda`` is torch's version.
    Where there is no driver, nothing is refused: an artifact can be loaded without a GPU."""
    if not architectures or here is None:
        return ""
    major = int(cuda.split(".")[0]) if cuda.split(".")[0].isdigit() else 0
    if here.driver[0] and here.driver[0] < major:
        driver = ".".join(map(str, here.driver))
        return f"driver: it needs one for CUDA {cuda}, the one here is for CUDA {driver}"
    if not here.capabilities or any(
        covers(one, capability) for one in architectures for capability in here.capabilities
    ):
        return ""
    there = ", ".join(f"sm_{major}{minor}" for major, minor in here.capabilities)
    return f"GPU architecture: it has code for {', '.join(architectures)}, here is {there}"


def covers(architecture: str, capability: tuple[int, int]) -> bool:
    """Whether code for an architecture runs on a GPU.

    >>> covers("sm_80", (8, 6)), covers("sm_80", (9, 0)), covers("compute_80", (9, 0))
    (True, False, True)
    >>> covers("sm_90a", (9, 0)), covers("compute_90a", (10, 0)), covers("sm_100f", (10, 3))
    (True, False, True)
    """
    found = _ARCHITECTURE.fullmatch(architecture)
    if found is None:
        return False
    own = int(found[2]), int(found[3])
    if found[4] == "a":
        return own == capability
    if found[1] == "sm" or found[4] == "f":
        return own[0] == capability[0] and own[1] <= capability[1]
    return own <= capability


@functools.cache
def here() -> Gpus | None:
    """The GPUs of this machine; None where there is no driver."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2() != 0:
            return None
    except (OSError, AttributeError):
        return None
    try:
        version, count = ctypes.c_int(), ctypes.c_uint()
        nvml.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(version))
        nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        found = []
        for number in range(count.value):
            device, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
            if (
                nvml.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(device)) == 0
                and nvml.nvmlDeviceGetCudaComputeCapability(
                    device, ctypes.byref(major), ctypes.byref(minor)
                )
                == 0
            ):
                found.append((major.value, minor.value))
        return Gpus(found, (version.value // 1000, version.value % 1000 // 10))
    except AttributeError:
        return None
    finally:
        nvml.nvmlShutdown()

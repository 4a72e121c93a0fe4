"""The device code in a library: PTX, and machine code as ``cuobjdump`` lists it, without the names
that nvcc makes up for a module, which differ between two builds of the same text.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

from warmcc import module_names

KINDS = {"PTX": "-ptx", "machine code": "-sass"}


def extract(library: Path, *, check: bool = True) -> dict[str, str]:
    """By kind, of all architectures. ``check``: there has to be some."""
    triton = Path(sysconfig.get_paths()["purelib"]) / "triton/backends/nvidia/bin"  # torch has it
    places = f"{os.environ['CUDA_HOME']}/bin:{os.environ['PATH']}:{triton}"
    tool = shutil.which("cuobjdump", path=places) or "cuobjdump"
    return {
        kind: module_names.without(
            subprocess.run(
                [tool, option, library], check=check, capture_output=True, text=True
            ).stdout
        )
        for kind, option in KINDS.items()
    }


def differing(ours: dict[str, str], theirs: dict[str, str]) -> list[str]:
    """Which kinds are not the same, or are missing."""
    return [kind for kind in KINDS if not theirs[kind] or ours[kind] != theirs[kind]]

"""The device code in a shared object: PTX, and machine code as ``cuobjdump`` lists it, without the
names that nvcc makes up for a module, which differ between two builds of the same text."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from warmcc import module_names

# What cuobjdump calls them; machine code is listed with the bytes of every instruction.
_KINDS = {"PTX": "-ptx", "machine code": "-sass"}


@functools.cache
def tool() -> str:
    """``cuobjdump``, of the toolkit or of Triton. Raises FileNotFoundError."""
    found = shutil.which(
        "cuobjdump", path=f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/bin"
    ) or shutil.which("cuobjdump")
    if (
        found is None
        and (spec := importlib.util.find_spec("triton")) is not None
        and spec.origin is not None
    ):
        found = str(Path(spec.origin).parent / "backends/nvidia/bin/cuobjdump")
    if found is None or not os.access(found, os.X_OK):
        raise FileNotFoundError(
            "cuobjdump is missing; it comes with the CUDA toolkit, and with Triton"
        )
    return found


def extract(library: Path) -> dict[str, str]:
    """PTX and machine code of all architectures. Raises OSError, CalledProcessError."""
    found = {}
    for kind, option in _KINDS.items():
        done = subprocess.run(
            [tool(), option, str(library)], check=True, capture_output=True, text=True
        )
        found[kind] = module_names.without(done.stdout)
    return found


def differing(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Which kinds of device code are not the same, or are missing.

    >>> differing({"PTX": "x", "machine code": ""}, {"PTX": "x", "machine code": ""})
    ['machine code']
    """
    return [kind for kind in _KINDS if not theirs[kind] or ours[kind] != theirs[kind]]

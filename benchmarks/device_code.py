"""The device code in a shared object: PTX and machine code as ``cuobjdump`` extracts them, without the names that nvcc
makes up for a module, which differ between two builds of the same text."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

# A module's name is in names of internal linkage, in one form for each front end; digests keep their length.
_MODULE = re.compile(rb"[0-9a-f]{8}_\d+_(\w*?)_cu_[0-9a-f]{8}(_\d+)?")
_KINDS = ("ptx", "elf")


@functools.cache
def tool() -> str:
    """``cuobjdump``, of the toolkit or of Triton. Raises FileNotFoundError."""
    found = shutil.which("cuobjdump", path=f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/bin") or shutil.which(
        "cuobjdump"
    )
    if found is None and (spec := importlib.util.find_spec("triton")) is not None and spec.origin is not None:
        found = str(Path(spec.origin).parent / "backends/nvidia/bin/cuobjdump")
    if found is None or not os.access(found, os.X_OK):
        raise FileNotFoundError("cuobjdump is missing; it comes with the CUDA toolkit, and with Triton")
    return found


def extract(library: Path) -> dict[str, list[bytes]]:
    """``{"ptx": …, "elf": …}``, each in order of architecture and content. Raises OSError, CalledProcessError."""
    found = {}
    for kind in _KINDS:
        with tempfile.TemporaryDirectory() as folder:
            words = [tool(), f"-x{kind}", "all", str(library.resolve())]
            subprocess.run(words, cwd=folder, check=True, capture_output=True)
            found[kind] = sorted(_MODULE.sub(rb"\1", path.read_bytes()) for path in Path(folder).iterdir())
    return found


def differing(ours: Mapping[str, list[bytes]], theirs: Mapping[str, list[bytes]]) -> list[str]:
    """Which kinds of device code are not the same byte for byte, or are missing.

    >>> differing({"ptx": [b"x"], "elf": []}, {"ptx": [b"x"], "elf": []})
    ['elf']
    """
    return [kind for kind in _KINDS if not theirs[kind] or ours[kind] != theirs[kind]]

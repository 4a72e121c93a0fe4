"""C++ sources that begin with a header of torch's that includes CUDA's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import warmcc
from tests.support.cuda import CudaDaemon

HEADER = "c10/cuda/CUDAException.h"
SOURCE = f"""#include <{HEADER}>
extern "C" int checked(int n) {{ C10_CUDA_CHECK(cudaSuccess); return n + NUMBER; }}
"""


def profile(daemon: CudaDaemon) -> dict[str, Any]:
    (found,) = [one for one in daemon.status()["profiles"] if HEADER in one["title"]]
    return dict(found)


def test_they_have_a_precompiled_header(cold: CudaDaemon, tmp_path: Path) -> None:
    """It is made with the toolkit's folder, which one for torch's other headers does without."""
    source = tmp_path / "checks.cpp"
    for number in (1, 2):
        source.write_text(SOURCE.replace("NUMBER", str(number)))
        warmcc.load("checks", [str(source)], with_cuda=True, is_python_module=False)
        cold.wait_for_profiles(1)
        assert profile(cold)["state"].startswith("ready")
    assert profile(cold)["uses"] == 1

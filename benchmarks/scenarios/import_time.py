"""What importing costs on top of a bare interpreter: ``import warmcc`` beside ``import torch.utils.cpp_extension``."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.harness import Outcome, Series, interleaved

TITLE = "import, on top of a bare interpreter"
REPEAT = 9


def _process(code: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


def measure(repeat: int) -> Outcome:
    def extra(code: str) -> float:
        return max(1e-4, _process(code) - min(_process("pass") for _ in range(3)))

    series = interleaved(
        repeat,
        (Series("warmcc", "warmcc"), lambda _: extra("import warmcc; warmcc.load_inline")),
        (Series("stock", "stock"), lambda _: extra("import torch.utils.cpp_extension")),
    )
    return Outcome("import_time", TITLE, series, ("warmcc", "stock"))

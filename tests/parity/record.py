"""``make parity-record``: run every case through stock torch and keep what it does, for this
version of torch.

``python -m tests.parity.record NAME...`` records these cases anew and leaves the others as they
are.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.parity.case import facts
from tests.parity.cases import CASES
from tests.parity.run import run

RECORDED = Path(__file__).parent / "recorded"
# Stock as it is, from its sources: newer torch would put ccache in front of the compiler by itself.
STOCK = {"TORCH_NO_COMPILER_WRAPPER": "1", "CCACHE_DISABLE": "1"}


def path() -> Path:
    """Where the record of the running torch lies. A CPU build and a CUDA build of one version have
    one each.
    """
    import torch

    return RECORDED / f"torch-{torch.__version__}.json"


def main() -> None:
    chosen = [case for case in CASES if case.name in sys.argv[1:]] or CASES
    cases = json.loads(path().read_text())["cases"] if sys.argv[1:] else {}
    RECORDED.mkdir(exist_ok=True)
    with ThreadPoolExecutor(2) as pool:
        for case, found in zip(
            chosen, pool.map(lambda case: run("stock", case, STOCK), chosen), strict=True
        ):
            found.pop("output")
            cases[case.name] = found
            print(
                f"{case.name}: {found.get('skipped') or str(found['seconds']) + ' s'}",
                file=sys.stderr,
                flush=True,
            )
    path().write_text(
        json.dumps({"facts": facts(), "cases": cases}, indent=1, ensure_ascii=False) + "\n"
    )
    print(f"recorded {len(chosen)} cases in {path()}", file=sys.stderr)


if __name__ == "__main__":
    main()

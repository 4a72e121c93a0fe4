"""Run parity cases, each in a process and a folder of its own.

``python -m tests.parity.run SIDE CASE`` runs one, SIDE being ``stock`` or ``warmcc``, and prints what it saw as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from tests.parity.case import Case, World, builtin_name, stock_parameters
from tests.parity.cases import BY_NAME

ROOT = Path(__file__).parents[2]
LIMIT_SECONDS = 280
_RESULT = "PARITY-RESULT "


def run(side: str, case: Case, environment: dict[str, str]) -> dict[str, Any]:
    """Run one case in a new process: {"observed": …, "seconds": …} or {"skipped": …}. Raises AssertionError."""
    with tempfile.TemporaryDirectory(prefix="warmcc-parity-") as folder:
        variables = {**os.environ, **environment, "TORCH_EXTENSIONS_DIR": f"{folder}/extensions"}
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        for name, value in case.environment.items():
            if value is None:
                variables.pop(name, None)
            else:
                variables[name] = value.replace("{folder}", folder)
        done = subprocess.run(
            [sys.executable, "-m", "tests.parity.run", side, case.name],
            cwd=folder, env=variables, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_SECONDS, check=False,
        )  # fmt: skip
    text = done.stdout.decode(errors="replace")
    before, mark, result = text.rpartition(_RESULT)
    assert mark, f"{case.name} through {side} ended with {done.returncode}:\n{text[-6000:]}"
    found: dict[str, Any] = json.loads(result.splitlines()[0])
    found["output"] = before
    return found


def main(side: str, name: str) -> None:
    case = BY_NAME[name]
    known = stock_parameters()
    if missing := case.unknown_parameters(known):
        print(_RESULT + json.dumps({"skipped": f"this torch does not know {', '.join(missing)}"}))
        return
    if side == "stock":
        from torch.utils import cpp_extension as implementation
    else:
        import warmcc as implementation
    world = World(Path.cwd(), implementation.load, implementation.load_inline, known)
    start = time.perf_counter()
    try:
        observed = case.observe(world)
    except Exception as error:  # where stock fails, warmcc must fail alike
        traceback.print_exc(file=sys.stdout)
        observed = {"the case raises": builtin_name(error)}
    seconds = round(time.perf_counter() - start, 2)
    print("\n" + _RESULT + json.dumps({"observed": observed, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

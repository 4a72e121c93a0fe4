"""A user's process: imports torch and one side (or both), then makes the calls that it reads from
its standard input.

Run as a script by ``harness.Caller``. Each line in is ``{"side", "function", "arguments",
"check"}``, each line out ``{"started", "ended", "right", "error"}``: the clock's readings around
the call, whether the module passed the check (an expression), and the exception's text. The clock
is the machine's (CLOCK_MONOTONIC), so that readings of several processes compare. A first line,
``{"import"}``, tells the seconds that the import of the side took, torch apart.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

# Python puts this script's folder in front; a user's process has no world.py or plot.py on its
# path.
sys.path[:] = [
    entry
    for entry in sys.path
    if os.path.realpath(entry or ".") != os.path.dirname(os.path.realpath(__file__))
]


def functions(side: str) -> dict[str, Callable[..., Any]]:
    """What a user imports at the top of a file, by name."""
    names = {"warmcc": "warmcc", "stock": "torch.utils.cpp_extension", "tvm_ffi": "tvm_ffi.cpp"}
    module = importlib.import_module(names[side])
    return {name: getattr(module, name) for name in ("load", "load_inline")}


def main(sides: list[str]) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever compilers print stays out of the answers
    import torch

    started = time.perf_counter()
    known = {side: functions(side) for side in sides}
    print(json.dumps({"import": time.perf_counter() - started}), file=answers)
    for line in sys.stdin:
        asked = json.loads(line)
        function, arguments = known[asked["side"]][asked["function"]], asked["arguments"]
        module, error = None, ""
        started = time.perf_counter()
        try:
            module = function(**arguments)
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        ended = time.perf_counter()
        right = not error and bool(eval(asked["check"], {"module": module, "torch": torch}))
        told = {"started": started, "ended": ended, "right": right, "error": error}
        print(json.dumps(told), file=answers)


if __name__ == "__main__":
    main(sys.argv[1:])

"""A user's process: imports torch and one side, makes the calls that it reads from standard input,
and tells of each how long it took, what it cost, and what came of it.

Run as a script. In: ``{"side", "calls": [{"function", "arguments", "check"}]}``. Out: a list of
``{"seconds", "cpu", "right", "file", "error"}``; ``cpu`` is the processor time of this process and
of its children, ``error`` the names of an exception's classes and its text. Nothing but this and
the measured call happens between the clock's readings; Python's collector is off, as in ``timeit``:
it runs after so many new objects, whoever made them, and takes as long as a hit.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import resource
import sys
import time
from typing import Any

# Python puts this script's folder in front; a user's process has no texts.py or table.py on its
# path.
sys.path[:] = [
    entry
    for entry in sys.path
    if os.path.realpath(entry or ".") != os.path.dirname(os.path.realpath(__file__))
]


def spent() -> float:
    """Processor seconds of this process and of the children that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def make(side: Any, torch: Any, call: dict[str, Any]) -> dict[str, Any]:
    """Make one call. An exception is an answer, too."""
    function, arguments = getattr(side, call["function"]), call["arguments"]
    module: Any = None
    error: Exception | None = None
    gc.disable()
    cpu, started = spent(), time.perf_counter()
    try:
        module = function(**arguments)
    except Exception as raised:
        error = raised
    seconds, cpu = time.perf_counter() - started, spent() - cpu
    gc.enable()
    answer = {"seconds": seconds, "cpu": cpu, "right": False, "file": "", "error": None}
    if error is not None:
        return answer | {
            "error": {"classes": [one.__name__ for one in type(error).__mro__], "text": str(error)}
        }
    right = bool(eval(call["check"], {"module": module, "torch": torch, "ctypes": ctypes}))
    return answer | {"right": right, "file": module.__file__}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever compilers print stays out of the answers
    asked = json.load(sys.stdin)
    import torch

    side = importlib.import_module(
        {"warmcc": "warmcc", "stock": "torch.utils.cpp_extension"}[asked["side"]]
    )
    _ = side.load, side.load_inline  # a user's first lines, not a part of the call
    json.dump([make(side, torch, call) for call in asked["calls"]], answers)


if __name__ == "__main__":
    main()

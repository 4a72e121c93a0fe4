"""In the process of a submission: load its extension from its bundle, and answer calls.

Everything here is in the hands of the submission from the moment its library is loaded. So nothing
here decides on a result: tensors go out, and ``run.py`` compares them.
"""

from __future__ import annotations

import time
from typing import Any

import torch

import warmcc

from . import interface
from .frames import Ended, Pipe

_LIMIT = 4 << 30  # bytes of the inputs, which come from the evaluator


def serve(read: int, write: int) -> None:
    """Answer the evaluator until it has closed the pipe."""
    pipe = Pipe(read, write)
    job, _ = pipe.receive(_LIMIT)
    device = "cuda" if job["cuda"] else "cpu"
    try:
        function = interface.function(warmcc.load_inline(**job["arguments"]))
    except Exception as error:
        pipe.send({"error": _said(error)})
        return
    pipe.send({"device": torch.cuda.get_device_name() if job["cuda"] else "cpu"})
    while True:
        try:
            message, given = pipe.receive(_LIMIT)
        except Ended:
            return
        each = message["each"]
        calls = [given[at : at + each] for at in range(0, len(given), each)]
        try:
            found, seconds = _measured(function, calls, device)
            pipe.send({"seconds": seconds}, found)
        except Exception as error:
            pipe.send({"error": _said(error)})


def _measured(
    function: Any, calls: list[list[torch.Tensor]], device: str
) -> tuple[list[torch.Tensor], float]:
    """The results of calls, and the seconds of all together."""
    there = [[one.to(device) for one in given] for given in calls]
    if device == "cpu":
        began = time.perf_counter()
        found = [function(*given) for given in there]
        return found, time.perf_counter() - began
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    found = [function(*given) for given in there]
    end.record()
    torch.cuda.synchronize()
    return found, start.elapsed_time(end) / 1000


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:2000]

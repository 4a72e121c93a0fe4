"""Measure the calls of one function: ``python -m warmcc.client.measuring.calls.child``, in a
process that ends afterwards.

Standard input holds, as JSON, the ``target`` (``module.function``), the ``extension`` as a path
where the module is one of the store's, the ``words`` of the arguments, the number of ``samples``,
and whether to build the empty ``probes``. With ``seconds``, the function is only called, for perf,
which listens at ``control``. Standard output receives the rows, or ``error``; what the function
prints goes to standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

from warmcc.client.measuring.calls import clock, expressions
from warmcc.client.measuring.calls.rows import Rows
from warmcc.errors import RequestError


def main() -> None:
    given = json.loads(sys.stdin.read())
    answer = os.dup(1)
    os.dup2(2, 1)
    try:
        told = _measured(given)
    except RequestError as error:
        told = {"error": str(error)}
    except Exception as error:
        told = {"error": f"{given['target']}: {type(error).__name__}: {error}"}
    with os.fdopen(answer, "w", encoding="utf-8", errors="backslashreplace") as file:
        json.dump(told, file)
    sys.stdout.flush()
    os._exit(0)  # without the last words of what was loaded, which could fail


def _measured(given: dict[str, Any]) -> dict[str, Any]:
    """Raises RequestError, and what the function raises."""
    import torch

    torch.manual_seed(0)
    positional, named = expressions.read_words(given["words"])
    arguments = [expressions.make(one, torch) for one in positional]
    keywords = {name: expressions.make(one, torch) for name, one in named.items()}
    function = find(given["target"], given["extension"])
    rows = Rows(function, arguments, keywords, torch)
    if given["seconds"]:
        for row in rows.made:
            if row.name == "call":
                _have_perf_look(*given["control"])
                clock.call_for(row, given["seconds"])
        return {"pid": os.getpid()}
    if given["probes"]:
        rows.add_probes()
    clock.sample(rows.ordered(), given["samples"], rows.mark)
    return {
        "function": f"{type(function).__module__}.{type(function).__qualname__}",
        "arguments": [describe(one, torch) for one in (*arguments, *keywords.values())],
        "torch": str(torch.__version__), "device": rows.device, "notes": rows.notes,
        "rows": [
            {
                "name": row.name, "about": row.about, "calls": row.calls, "samples": row.samples,
                "failure": row.failure,
            }
            for row in rows.ordered()
        ],
    }  # fmt: skip


def _have_perf_look(control: str, answer: str) -> None:
    with open(control, "w", encoding="ascii") as to, open(answer, encoding="ascii") as back:
        to.write("enable\n")
        to.flush()
        back.readline()


def find(target: str, extension: str) -> Any:
    """The function of a name: in the module of the longest prefix that can be imported, or in an
    extension's file. Raises RequestError, and what an import raises."""
    parts = target.split(".")
    if extension:
        from warmcc.client.stubs.child import load

        found: Any = load(parts[0], extension)
        rest = parts[1:]
    else:
        found, rest = _import(parts)
    for number, part in enumerate(rest, len(parts) - len(rest)):
        if not hasattr(found, part):
            raise RequestError(f"{'.'.join(parts[:number])} has no {part}")
        found = getattr(found, part)
    if not callable(found):
        raise RequestError(f"{target} cannot be called: it is a {type(found).__name__}")
    return found


def _import(parts: list[str]) -> tuple[Any, list[str]]:
    for count in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:count])
        try:
            return importlib.import_module(name), parts[count:]
        except ModuleNotFoundError as error:
            # Of a class, or of an object such as torch.ops.aten; not of what a module needs
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
    raise RequestError(f"there is no module {parts[0]}")


def describe(value: Any, torch: Any) -> str:
    """An argument in a few words."""
    if isinstance(value, torch.Tensor):
        kind = str(value.dtype).removeprefix("torch.")
        layout = "" if value.is_contiguous() else ", not contiguous"
        return f"{kind}{list(value.shape)} on {value.device}{layout}"
    return repr(value)[:60]


if __name__ == "__main__":
    main()

"""Import torch, wait for a job on standard input, and call one function.

Started ahead of need by ``warmcc watch --call``, so that torch's import is over when the next
version is there.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import sys
from typing import Any


def extension(job: dict[str, Any]) -> Any:
    """The extension: a module, or the path of a library after loading it."""
    import torch

    if not job["is_module"]:
        torch.ops.load_library(job["path"])  # type: ignore[no-untyped-call]
        return job["path"]
    spec = importlib.util.spec_from_file_location(job["name"], job["path"])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> int:
    import torch  # noqa: F401

    text = sys.stdin.read()
    if not text:
        return 0  # nobody needs this process any longer
    job = json.loads(text)
    module, name = job["target"].split(":")
    sys.path.insert(0, "")
    function: Any = importlib.import_module(module)
    for part in name.split("."):
        function = getattr(function, part)
    built = extension(job)
    takes = bool(inspect.signature(function).parameters)
    if (result := function(built) if takes else function()) is not None:
        print(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())

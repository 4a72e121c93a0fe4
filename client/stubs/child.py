"""Load an extension and write its stub: ``python -m warmcc.client.stubs.child``, in a process that
ends afterwards.

Standard input holds, as JSON, the ``path`` and ``name`` of the module, and ``sources``, texts of
C++ where they are known. Standard output receives ``text``, or ``error``; what the module prints
goes to standard error.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import resource
import sys
from types import ModuleType

_MOST_OUTPUT = 16 << 20  # bytes that the module may print


def main() -> None:
    given = json.loads(sys.stdin.read())
    answer = os.dup(1)
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_OUTPUT, _MOST_OUTPUT))
    try:
        module = load(given["name"], given["path"])
        from warmcc.client.stubs.writer import Writer

        told = {"text": Writer(module, given["sources"]).text()}
    except Exception as error:
        told = {"error": f"{type(error).__name__}: {error}"}
    with os.fdopen(answer, "w", encoding="utf-8", errors="backslashreplace") as file:
        json.dump(told, file)
    os._exit(0)  # without the module's last words, which could fail


def load(name: str, path: str) -> ModuleType:
    """Raises whatever the module raises."""
    import torch  # noqa: F401  # its libraries must be there first

    loader = importlib.machinery.ExtensionFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()

"""``python -m tests.support.run_page``: runs the blocks of a page, which come as JSON on standard
input (tests/support/pages.py), in this folder and this process. Ends with 1 at the first that fails.
"""

from __future__ import annotations

import json
import linecache
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

from tests.support.command_of_page import end_own_daemon


def main() -> int:
    told = json.load(sys.stdin)
    names: dict[str, Any] = {"__name__": "__page__"}
    sys.path.insert(0, ".")
    exec(told["given"], names)
    try:
        for step in told["steps"]:
            where = f"{told['page']}:{step['line']}"
            print(f"--- {where}", flush=True)
            try:
                _run(step, names, where)
            except BaseException:
                print(f"{where} failed:\n{step['text']}\n{traceback.format_exc()}")
                return 1
    finally:
        end_own_daemon()
    return 0


def _run(step: dict[str, Any], names: dict[str, Any], where: str) -> None:
    text = step["text"]
    if step["title"]:
        path = Path(step["title"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    elif step["language"] == "sh":
        # A file, not standard input: a command of the block may read that.
        subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text], check=True, stdin=subprocess.DEVNULL
        )
    elif step["language"] == "ipython":
        _run_cells(text)
    else:
        linecache.cache[where] = (len(text), None, text.splitlines(True), where)
        exec(compile(_without_gpu(text), where, "exec"), names)


def _without_gpu(text: str) -> str:
    """Where there is no GPU, lines that end in ``# on a GPU`` are left out."""
    import torch

    if torch.cuda.is_available():
        return text
    return "\n".join(line for line in text.splitlines() if not line.endswith("# on a GPU"))


def _run_cells(text: str) -> None:
    """The cells of a notebook: a blank line is between them."""
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    for cell in text.strip().split("\n\n"):
        shell.run_cell(cell).raise_error()


if __name__ == "__main__":
    sys.exit(main())

"""The instructions in an object of g++'s."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path


def code_of(path: Path, *, own: bool = False) -> dict[str, str]:
    """Of each function, without their places: g++ with a precompiled header may put the same
    functions in another order. ``own``: without those that other objects may have, too, such as
    templates.
    """
    argv = ["objdump", "--disassemble", "--reloc", "--no-show-raw-insn", "--no-addresses"]
    argv += [*(["-j", ".text"] if own else []), str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    parts = re.findall(r"^<(.*)>:\n((?:.+\n?)*)", done.stdout, flags=re.M)
    return {name: _without_places(text) for name, text in parts}


def _without_places(text: str) -> str:
    lines = (
        re.sub(r"-?0x[0-9a-f]+|#.*|<.*|\.LC\d+", "", line).rstrip() for line in text.split("\n")
    )
    return "\n".join(line for line in lines if not re.search(r"nop|xchg +%ax,%ax", line))

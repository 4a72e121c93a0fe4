"""The table of all cases. The modules named here fill it; their order is the order in which cases
run.
"""

from tests.parity.case import CASES, Case
from tests.parity.cases import bindings, files, flags, folders, inline, linking, repeats

__all__ = [
    "BY_NAME", "CASES", "bindings", "files", "flags", "folders", "inline", "linking", "repeats",
]  # fmt: skip

BY_NAME: dict[str, Case] = {case.name: case for case in CASES}
if len(BY_NAME) != len(CASES):
    raise AssertionError("two parity cases have the same name")

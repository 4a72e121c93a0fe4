"""The table of all cases. The modules named here fill it; their order is the order in which cases
run.
"""

from tests.parity import binding_cases, flag_cases, inline_cases, load_cases, repeat_cases
from tests.parity.case import CASES, Case

__all__ = [
    "BY_NAME",
    "CASES",
    "binding_cases",
    "flag_cases",
    "inline_cases",
    "load_cases",
    "repeat_cases",
]

BY_NAME: dict[str, Case] = {case.name: case for case in CASES}
if len(BY_NAME) != len(CASES):
    raise AssertionError("two parity cases have the same name")

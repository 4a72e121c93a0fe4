"""A small C++ source that nobody has built before, by a daemon with ``sandbox = true``; in the same
turns by one without and by stock.
"""

from __future__ import annotations

from benchmarks.harness import Call, new_number, sandboxed
from benchmarks.harness.results import Outcome

TITLE = "sandbox: a small C++ source"
REPEAT = 15


def make() -> Call:
    number = new_number()
    arguments = {
        "cpp_sources": '#include <vector>\n'
        f'extern "C" int number() {{ return std::vector<int>({number}).size(); }}\n',
        "no_implicit_headers": True, "is_python_module": False,
    }  # fmt: skip
    return Call(
        "load_inline",
        f"plain_{number}",
        arguments,
        f"__import__('ctypes').CDLL(module).number() == {number}",
    )


def measure(repeat: int) -> Outcome:
    return sandboxed.measure(repeat, make)

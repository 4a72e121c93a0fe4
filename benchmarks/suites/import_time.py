"""What the import at the top of a user's file costs: ``from … import load_inline`` after ``import
torch``, and a plain import in a bare interpreter.

Measured inside new processes, around the import. warmcc puts off what it can: the rest of its
imports comes with the first call, and is part of ``hit_new_process``. Stock's import in a bare
interpreter includes torch.
"""

from __future__ import annotations

import subprocess
import sys

from benchmarks.harness import Unsound, interleaved, plain_environment, seconds
from benchmarks.harness.results import Outcome, Target, pair

TITLE = "import load_inline, after torch"
REPEAT = 9
IMPORT_SECONDS = 0.020
CODE = """
{before}
import sys, time
known = set(sys.modules)
started = time.perf_counter()
{statement}
print(time.perf_counter() - started)
early = {{"torch", "zmq"}} & (set(sys.modules) - known)
if early and "{statement}" == "import warmcc": sys.exit(f"{statement} has imported {{early}}")
"""


def import_seconds(statement: str, before: str = "") -> float:
    """Seconds that an import takes in a new process. Raises Unsound, also when warmcc's alone
    imports torch or zmq.
    """
    found = subprocess.run(
        [sys.executable, "-c", CODE.format(statement=statement, before=before)],
        env=plain_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if found.returncode != 0:
        raise Unsound(found.stderr)
    return float(found.stdout.split()[-1])


def measure(repeat: int) -> Outcome:
    measures = {
        "stock": lambda: import_seconds(
            "from torch.utils.cpp_extension import load_inline", "import torch"
        ),
        "warmcc": lambda: import_seconds("from warmcc import load_inline", "import torch"),
        "stock, bare": lambda: import_seconds("import torch.utils.cpp_extension"),
        "warmcc, bare": lambda: import_seconds("import warmcc"),
    }
    interleaved(1, measures)  # writes byte code and fills the page cache
    taken = interleaved(repeat, measures)
    bare = pair("plain import, bare interpreter", taken["stock, bare"], taken["warmcc, bare"])
    took = bare.warmcc.median
    target = Target(
        f"import warmcc takes {seconds(took)}, under {seconds(IMPORT_SECONDS)}",
        took < IMPORT_SECONDS,
    )
    return Outcome(pair("", taken["stock"], taken["warmcc"]), [bare], [target])

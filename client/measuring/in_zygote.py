"""What imports cost in a program of ``warmcc run``, and which of their modules its zygote lacks.

The program is run by the command itself, so that the zygote is the one of this terminal.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from warmcc.client.measuring.imports import SECONDS, Imports, Module

_MARK = "warmcc: python runs it: "
_PROGRAM = """
import sys, time
names, before = sys.argv[1:], list(sys.modules)
began = time.perf_counter()
for name in names:
    __import__(name)
took = time.perf_counter() - began
import json
print("\\n" + json.dumps([took, before]))
"""


@dataclass(frozen=True)
class InZygote:
    """``seconds`` is what the imports take there; ``before`` are the modules that a program finds
    imported. ``why_none`` says why no zygote ran it; then there is nothing else."""

    seconds: float = 0.0
    before: frozenset[str] = frozenset()
    why_none: str = ""

    def missing(self, imports: Imports) -> list[Module]:
        """The modules that the zygote does not have, the dearest first; none that is imported in
        another one of them."""
        found: list[Module] = []
        waiting = list(imports.roots)
        while waiting:
            one = waiting.pop()
            if one.name in self.before:
                waiting += one.children
            else:
                found.append(one)
        return sorted(found, key=lambda module: -module.whole)


def measure(names: Sequence[str], profile: str, repeat: int) -> InZygote:
    """Import the same in programs of ``warmcc run``; the fastest counts."""
    command = [sys.executable, "-m", "warmcc.client.run.launch", "--explain", "--profile", profile]
    best = InZygote(why_none="it was not tried")
    for _ in range(repeat):
        try:
            done = subprocess.run(
                [*command, "-c", _PROGRAM, *names], stdin=subprocess.DEVNULL, capture_output=True,
                text=True, errors="replace", timeout=SECONDS, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return InZygote(why_none=str(error))
        if _MARK in done.stderr:
            return InZygote(why_none=done.stderr.partition(_MARK)[2].splitlines()[0])
        if done.returncode != 0:
            return InZygote(why_none=done.stderr.strip()[-500:] or f"code {done.returncode}")
        took, before = json.loads(done.stdout.splitlines()[-1])
        if best.why_none or took < best.seconds:
            best = InZygote(took, frozenset(before))
    return best

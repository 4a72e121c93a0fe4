"""An analysis as ``warmcc analyze`` makes one, for tests of what is made of it."""

from __future__ import annotations

from warmcc.client.analyze.report import (
    Analysis,
    Build,
    Counted,
    Header,
    Node,
    Phase,
    Step,
    Template,
    Unit,
)
from warmcc.client.stock.processes import Process
from warmcc.record import Span

NASTY = "</script><script>alert(1)</script>&\"'"


def analysis(headers: int = 40) -> Analysis:
    """With text that ends scripts, wherever text comes from outside."""
    processes = [
        Process(10, 1, "ninja", ["ninja"], 1.0, 9.0, 0.1, 0.1, 1 << 20),
        Process(11, 10, "g++", ["g++", NASTY], 1.1, 8.9, 0.0, 0.0, 1 << 20),
        Process(12, 11, "cc1plus", ["cc1plus"], 1.2, 8.0, 6.5, 0.3, 900 << 20),
        Process(13, 11, "as", ["as"], 8.0, 8.8, 0.8, 0.0, 90 << 20),
        Process(14, 10, "g++", ["g++"], 1.1, 5.0, 0.0, 0.0, 1 << 20),
    ]
    phases = [Phase("import torch", 0.0, 1.0), Phase("ninja and the compilers", 1.0, 9.0)]
    build = Build(
        9.5, 8.0, 0.5, 900 << 20, phases, [Step("main.o", 1.1, 8.9)], processes, 0.2, 0.99, 0.98
    )
    found = [
        Header(f"/t/{n}{NASTY}.h", f"t/{n}{NASTY}.h", "torch" if n % 3 else "user", 1, 1000 + n,
               0.01 * n, 0.02)
        for n in range(headers)
    ]  # fmt: skip
    tree = [Node(n, (n - 1) // 3 if n else -1, 0.01 * n) for n in range(headers)]
    templates = [Template(f"f<{NASTY}>", 3, 0.5, f"g<{NASTY}>")]
    unit = Unit("main.cpp", "main.o", False, 7.8, 2.0, found, tree, 8.0, {}, templates)
    return Analysis(
        f"name{NASTY}", "2.12", "c++", build, [unit], Counted(), Counted(),
        [Span("compile", "main.cpp", 0.1, 0.4)], 0.5, [f"advice {NASTY}"],
    )  # fmt: skip

"""``python -m benchmarks.steps``: where the time of a cold C++ toy goes, step by step, stock beside
warmcc.

Stock's steps are its own commands, run again one by one: what ``g++ -E``, ``-fsyntax-only`` and
``-c`` take tells reading the headers from parsing them, and from instantiating templates and
generating code. warmcc's are what the daemon tells of its steps. In turns, medians; every sample of
warmcc has a source never seen before.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import Caller, World, interleaved, machine, new_toy, say, seconds

REPEAT = 5
STEPS = {
    "stock torch": [
        "read the headers",
        "parse them",
        "instantiate, generate code",
        "link",
        "the rest",
    ],
    "warmcc": ["plan", "compile", "link", "publish", "the rest", "import the module"],
}
Sample = dict[str, float]


def stock(world: World) -> Sample:
    """One cold call, then its compile and link commands again."""
    call = new_toy()
    with Caller(world, "stock") as caller:
        whole = caller.make("stock", call)
    folder = world.build_folder("stock", call.name)
    listed = subprocess.run(
        ["ninja", "-t", "commands"], cwd=folder, capture_output=True, text=True, check=True
    )
    compile_, link = listed.stdout.strip().splitlines()

    def run(command: str) -> float:
        started = time.perf_counter()
        subprocess.run(
            command,
            shell=True,
            cwd=folder,
            env=world.environment,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return time.perf_counter() - started

    read = run(compile_.replace(" -c ", " -E "))
    parsed = run(compile_.replace(" -c ", " -fsyntax-only "))
    compiled, linked = run(compile_), run(link)
    values = [read, parsed - read, compiled - parsed, linked, max(0.0, whole - compiled - linked)]
    return dict(zip(STEPS["stock torch"], values, strict=True))


def warm() -> Sample:
    """One cold call by way of the client's own modules, which see what the daemon tells of its
    steps.
    """
    from warmcc import load_inline
    from warmcc.client.calls import arguments
    from warmcc.client.connection import session
    from warmcc.client.loading import loader
    from warmcc.protocol import Built

    call = new_toy()
    given = inspect.signature(load_inline).bind(call.name, **call.arguments)
    given.apply_defaults()
    started = time.perf_counter()
    request = arguments.to_request(
        "load_inline", {k: v for k, v in given.arguments.items() if k != "newer"}
    )
    answer = session.current(autostart=False).build(request)
    assert isinstance(answer, Built), answer
    answered = time.perf_counter()
    module = loader.load(request, answer, None)
    loaded = time.perf_counter()
    assert eval(call.check, {"module": module, "torch": sys.modules["torch"]})
    rest = answered - started - sum(answer.steps.values())
    return {**answer.steps, "the rest": rest, "import the module": loaded - answered}


def measure(repeat: int) -> dict[str, Sample]:
    """The medians of each side's steps, in seconds."""
    import torch  # noqa: F401  (its import is not part of a call)

    with World() as world:
        os.environ.update(world.environment)
        world.wait_for_pch()
        taken = interleaved(repeat, {"stock torch": lambda: stock(world), "warmcc": warm})
    return {
        side: {step: median(one[step] for one in taken[side]) for step in STEPS[side]}
        for side in taken
    }


def draw(found: dict[str, Any], folder: Path) -> Path:
    """Two bars, one above the other: warmcc's is enlarged below, as it would be too small to
    read.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    colours = ["#b5bcc4", "#848d97", "#5f6872", "#e4572e", "#f0a17f", "#f6c9b3"]
    ink = "#7d858f"
    figure, rows = plt.subplots(3, 1, figsize=(9, 4.6), layout="constrained")
    total = sum(found["steps"]["stock torch"].values())
    for axes, side, limit in zip(
        rows, ("stock torch", "warmcc", "warmcc"), (total, total, None), strict=True
    ):
        steps = {name: value for name, value in found["steps"][side].items() if value >= 5e-4}
        whole = sum(steps.values())
        left = 0.0
        for (name, value), colour in zip(steps.items(), colours, strict=False):
            axes.barh(0, value, left=left, color=colour, label=f"{name}, {seconds(value)}")
            left += value
        enlarged = "" if limit else f", enlarged {total / whole:.0f} times"
        axes.set_title(f"{side}: {seconds(whole)}{enlarged}", loc="left", color=ink, fontsize=11)
        axes.set_xlim(0, limit or whole)
        axes.set_yticks([])
        axes.spines[:].set_visible(False)
        axes.tick_params(colors=ink)
        if limit is None or side == "stock torch":
            axes.legend(
                ncols=3, loc="upper left", bbox_to_anchor=(0, -0.28), frameon=False, labelcolor=ink,
                fontsize=9, borderaxespad=0,
            )  # fmt: skip
    figure.supxlabel(f"seconds · {machine.describe(found['machine'])}", color=ink, fontsize=7.5)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "steps.png"
    figure.savefig(path, dpi=160, transparent=True)
    plt.close(figure)
    return path


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.steps", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--repeat", type=int, default=REPEAT, metavar="N", help="samples of each side"
    )
    parser.add_argument("--json", metavar="FILE", help="write the medians to FILE")
    parser.add_argument(
        "--from", dest="source", metavar="FILE", help="show what is in FILE instead of measuring"
    )
    parser.add_argument("--plot", metavar="DIR", help="draw steps.png in DIR (needs matplotlib)")
    arguments = parser.parse_args(argv)
    if arguments.source:
        found = json.loads(Path(arguments.source).read_text())
    else:
        found = {"machine": machine.facts(), "steps": measure(arguments.repeat)}
    for side, steps in found["steps"].items():
        print(f"{side}: {seconds(sum(steps.values()))}")
        for step, value in steps.items():
            print(f"  {seconds(value):>8}  {step}")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=1) + "\n")
    if arguments.plot:
        say(f"wrote {draw(found, Path(arguments.plot))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

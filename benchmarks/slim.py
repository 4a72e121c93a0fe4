"""``python -m benchmarks.slim``: ``warmcc slim`` on thirty sources shaped like real kernels:
whether the code stays the same, and how much faster stock builds each of them then.

Eighteen are CUDA sources (those of ``benchmarks.loop``, and four of the corpus), ten are C++ files
that bind themselves (``benchmarks/sources/slim``), and two are longer ones, with ``functions=``.
A source that binds itself becomes two, where that is the same code (``--split``).
Stock's ninja builds each before and after, in turns. With ``--jobs``, sources are measured beside
others, so that ratios count, and seconds do not. Exit code 1 where a source could not be built.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import multiprocessing
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.corpus import UNITS
from benchmarks.harness import machine, say, seconds
from benchmarks.harness.cuda import library_headers
from benchmarks.loop import kernels
from benchmarks.suites.real_sources import ALL, SOURCES
from warmcc.client.cli.display.output import table
from warmcc.client.live.recipe import Recipe
from warmcc.client.slim.slim import Result, slim
from warmcc.errors import RequestError

_UNITS = ("histogram", "reduce_shared", "rms_norm_half", "vectorized_loads")
_LONGER = {"fused_adamw.cpp", "tokenizer.cpp"}
_PR_SET_PDEATHSIG = 1
_HEADERS = ("<torch/extension.h>", "<cuda_runtime.h>")


@dataclass(frozen=True)
class Case:
    """One source, and the functions that stock binds (None: it does so itself)."""

    name: str
    path: Path
    functions: list[str] | None
    include: tuple[str, ...] = ()

    @property
    def is_cuda(self) -> bool:
        return self.path.suffix == ".cu"

    def recipe(self) -> Recipe:
        arguments = {"extra_include_paths": list(self.include)}
        name = self.name.replace(" ", "_")
        return Recipe.of(name, [self.path], self.functions, arguments)


def cases(folder: Path) -> Iterator[Case]:
    """All of them; sources that are drawn are written into the folder."""
    for path in sorted((SOURCES / "slim").glob("*.cpp")):
        yield Case(path.stem, path, None)
    for one in ALL:
        if one.file in _LONGER:
            yield Case(one.file.partition(".")[0], SOURCES / one.file, one.functions)
    for number, kernel in enumerate(kernels.KERNELS):
        values = {"n": number, "edit": 2, "threads": 256, "tile": 16, "activation": "gelu"}
        text, _ = kernels.source(kernel, _HEADERS, "", values)
        path = folder / f"{kernel.name.replace(' ', '_')}.cu"
        path.write_text(text, encoding="utf-8")
        library = tuple(library_headers()) if "cublas" in text else ()
        functions = None if kernel.binds else [f"f_{number}"]
        yield Case(f"CUDA {kernel.name}", path, functions, library)
    for path in UNITS:
        if path.stem in _UNITS:
            yield Case(f"CUDA {path.stem}", path, ["run"])


def measure(case: Case, *, aliases: bool) -> dict[str, Any]:
    """One row."""
    row: dict[str, Any] = {"name": case.name}
    try:
        found = slim(
            case.recipe(), aliases=aliases, measure=True, splits=case.functions is None,
            say=lambda _text: None,
        )  # fmt: skip
    except (RequestError, OSError) as error:
        return row | {"error": str(error)[-500:]}
    return row | _figures(found)


def _figures(found: Result) -> dict[str, Any]:
    reasons = [f"{one.name}: {one.why_not}" for one in found.sources if one.why_not]
    reasons += [f"not split: {found.why_whole}"] if found.why_whole else []
    return {
        "seconds": found.seconds,
        "gain": found.gain,
        "split": any(one.is_new for one in found.sources),
        "headers": {one.name: list(one.headers) for one in found.sources},
        "why_not": reasons,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.slim", description=(__doc__ or "").partition("\n\n")[0]
    )
    parser.add_argument("name", nargs="*", help="names of sources (default: all)")
    parser.add_argument("--only", choices=["cpp", "cuda"])
    parser.add_argument("--no-aliases", action="store_true", help="leave torch:: to torch/types.h")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="sources at a time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="written after each source")
    arguments = parser.parse_args()
    kept: dict[str, Any] = {
        "machine": machine.facts(), "aliases": not arguments.no_aliases, "jobs": arguments.jobs,
        "rows": [],
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="warmcc-bench-slim-") as folder:
        chosen = [
            case for case in cases(Path(folder))
            if case.name in (arguments.name or [case.name])
            and arguments.only in (None, "cuda" if case.is_cuda else "cpp")
        ]  # fmt: skip
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(arguments.jobs, context, _ends_with_its_parent) as pool:
            going = [pool.submit(measure, one, aliases=kept["aliases"]) for one in chosen]
            for done in as_completed(going):
                kept["rows"].append(done.result())
                say(f"  {json.dumps(kept['rows'][-1])}")
                if arguments.json is not None:
                    arguments.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    _show(kept["rows"])
    return 1 if any("error" in row for row in kept["rows"]) else 0


def _ends_with_its_parent() -> None:
    """A benchmark that is killed leaves nothing running."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _show(rows: list[dict[str, Any]]) -> None:
    shown = [("SOURCE", "BEFORE", "AFTER", "GAIN", "")]
    for row in rows:
        before, after = row.get("seconds") or (None, None)
        told = row.get("error") or "; ".join(row.get("why_not", []))
        times = [seconds(one) if one is not None else "" for one in (before, after)]
        gain = f"{row['gain']:.1f}x" if row.get("gain") else ""
        shown.append((row["name"], *times, gain, told[:100]))
    table(shown, right=(1, 2, 3))
    built = [row for row in rows if "error" not in row]
    smaller = sum(bool(row["gain"]) for row in built)
    print(f"the same code with fewer headers: {smaller} of {len(rows)}")
    for kind, some in {
        "all": built,
        "CUDA": [row for row in built if row["name"].startswith("CUDA ")],
        "C++": [row for row in built if not row["name"].startswith("CUDA ")],
    }.items():
        if some:  # one whose includes stay is built as before
            gain = statistics.median(row["gain"] or 1.0 for row in some)
            print(f"median gain of {kind}: {gain:.1f}x")


if __name__ == "__main__":
    sys.exit(main())

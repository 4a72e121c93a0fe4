"""How many wrong changes the unit tests notice: ``python -m benchmarks.mutation MODULE…``.

pytest collects the unit tests of a module, once. Each mutant (mutants.py) then has a fork of that
process, which puts the mutant in place of the module and runs the tests. No file is changed. A
mutant is killed when a test fails, when it cannot be imported, or when the tests take far longer
than without it. All others survive.

``TESTS`` says which tests a module has. A mutant in a function needs only those that call the
function; a first run without a mutant tells which, and how long each takes. Those that killed other
mutants of the function run first, then the fastest. Tests that take longer than ``--slow`` seconds
of processor time are left out.

Class bodies outside of methods are not mutated: other modules hold the classes.

Results are kept in ``--json`` after each mutant. A run that is stopped goes on where it was, unless
the module has changed. ``--again`` repeats the mutants that survived, after the tests have changed.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import mutants
from benchmarks.forks import Tests, in_a_fork, place_of, put_in_place

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results/mutation.json"
CLOSURE = ("test_closure_records", "test_closure_checks")
STORE = ("test_store_publishing", "test_store_finding", "test_store")
TESTS = {  # of each module, the files of unit tests that run for it
    "warmcc.digest": ("test_digest",),
    "warmcc.daemon.plan.keys": ("test_request_key",),
    "warmcc.daemon.closure.closure": CLOSURE,
    "warmcc.daemon.closure.reading": CLOSURE,
    "warmcc.daemon.closure.seen": ("test_seen", *CLOSURE),
    "warmcc.daemon.store.store": STORE,
    "warmcc.daemon.store.layout": STORE,
    "warmcc.daemon.toolchain.nvcc_flags": ("test_nvcc_flags",),
    "warmcc.daemon.cuda.unit_text.eligibility": ("test_eligibility",),
    "warmcc.daemon.plan.policy": ("test_policy_flags", "test_policy_fields"),
}
# Without what costs time in each fork: fixtures of daemons, and pretty reports of failures.
_CONFTESTS = sorted((ROOT / "tests/unit").rglob("conftest.py"))
_OPTIONS = [
    "-qs", "--noconftest", "-p", "no:cacheprovider",
    "-p", "no:hypothesispytest", "--assert=plain", "--tb=native", "--durations=0",
    f"--rootdir={ROOT}", "-c", f"{ROOT}/pyproject.toml",
    *(f"-p{'.'.join(path.relative_to(ROOT).with_suffix('').parts)}" for path in _CONFTESTS),
]  # fmt: skip
# Seconds for a mutant: some, and some for each second of processor time of its tests without it.
_PATIENCE, _TIMES = 15.0, 20


# ---------------------------------------------------------------------- modules and their tests


def path_of(module: str) -> Path:
    """The file of a module of warmcc or of the tests, or of a package."""
    parts = module.split(".")
    if parts[:2] in (["warmcc", "client"], ["warmcc", "daemon"]):
        parts = parts[1:]
    path = ROOT.joinpath(*parts)
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def tests_of(module: str) -> list[Path]:
    """The files of the tests of a module. Raises SystemExit when one is not there."""
    found = []
    for name in TESTS[module]:
        if not (paths := sorted((ROOT / "tests/unit").rglob(f"{name}.py"))):
            raise SystemExit(f"{module}: there is no tests/unit/**/{name}.py; correct TESTS")
        found += paths
    return found


def _class_lines(source: str) -> set[int]:
    """The lines of classes that are in no method."""
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    lines = {line for node in classes for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    return lines.difference(
        line for first, last in _functions(source) for line in range(first, last + 1)
    )


def _functions(source: str) -> list[tuple[int, int]]:
    """The first and last lines of the functions and methods that stand in no other."""
    found = []
    for top in ast.parse(source).body:
        for node in top.body if isinstance(top, ast.ClassDef) else [top]:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                found.append((first, node.end_lineno or first))
    return found


# ---------------------------------------------------------------------- a module


class Subject:
    """One module with its tests, and what is known of its mutants."""

    def __init__(self, module: str, known: dict[str, Any]) -> None:
        self.module = module
        self.source = path_of(module).read_text()
        self.paths = tests_of(module)
        self._functions = _functions(self.source)
        untouched = _class_lines(self.source)
        self._mutants = [one for one in mutants.of(self.source) if one.line not in untouched]
        digest = hashlib.sha256(self.source.encode()).hexdigest()[:12]
        if known.get("source") != digest:
            known.clear()
            known.update(source=digest, killed={}, survived=[], none=[])
        known["mutants"] = len(self._mutants)
        self.known = known
        self._kills: dict[int | None, Counter[str]] = defaultdict(Counter)  # by function and test

    def waiting(self, again: bool) -> list[mutants.Mutant]:
        """The mutants that are to be run, in an order that is none: what is done of them when a run
        is stopped is a sample of all."""
        survived = {one["name"] for one in self.known["survived"]}
        done = {*self.known["killed"], *self.known["none"], *(() if again else survived)}
        left = [one for one in self._mutants if one.name not in done]
        return sorted(left, key=lambda one: hashlib.sha256(one.name.encode()).digest())

    def run(self, waiting: list[mutants.Mutant], slow: float, done: Callable[[], bool]) -> None:
        """Run mutants until ``done``, which is asked after each."""

        def work(tests: Tests) -> None:
            known = tests.measured(path_of(self.module), self._functions)
            known = {name: test for name, test in known.items() if test["seconds"] <= slow}
            if (killer := self._killer(tests, known, self.source, None)) is not None:
                raise SystemExit(f"{self.module}: {killer} fails with the module itself in place")
            for mutant in waiting:
                if (source := mutant.source()) is None:
                    self.known["none"].append(mutant.name)
                else:
                    place = place_of(self._functions, mutant.line)
                    self._note(mutant, self._killer(tests, known, source, place))
                if done():
                    break

        with tempfile.TemporaryDirectory(prefix="warmcc-mutants-") as folder:
            options = [*_OPTIONS, f"--basetemp={folder}/tests", *map(str, self.paths)]
            if pytest.main(options, [Tests(work)]) != 0:
                raise SystemExit(f"{self.module}: its tests do not run")

    def _killer(
        self, tests: Tests, known: dict[str, dict[str, Any]], source: str, place: int | None
    ) -> str | None:
        """What kills a source whose change is in the function that begins at ``place``: the name of
        a test, ``import`` or ``time``; None: it survives."""
        seconds = {
            name: test["seconds"]
            for name, test in known.items()
            if place is None or place in test["calls"] or test["forks"]
        }
        kills = self._kills[place]
        names = sorted(seconds, key=lambda name: (-kills[name], seconds[name]))

        def work() -> dict[str, Any]:
            put_in_place(source, sys.modules[self.module])
            return {"failed": tests.first_failure(names)}

        said = in_a_fork(work, _PATIENCE + _TIMES * sum(seconds.values()))
        if said is None:
            return "time"
        failed: str | None = said.get("failed", "import")
        kills.update([failed] if failed else [])
        return failed

    def _note(self, mutant: mutants.Mutant, killer: str | None) -> None:
        survived = [one for one in self.known["survived"] if one["name"] != mutant.name]
        if killer is not None:
            test = killer.partition("[")[0].rpartition("::")[2]
            self.known["killed"][mutant.name] = f"{mutant.operator} {test}"
        else:
            told = {"name": mutant.name, "operator": mutant.operator, "line": mutant.line}
            survived.append({**told, "change": mutant.lines()})
        self.known["survived"] = sorted(survived, key=lambda one: one["line"])


def table(known: dict[str, Any]) -> str:
    """The figures as a table in Markdown. Mutants of texts are those that change only a string."""
    rows = [
        "| module | mutants | run | killed | survived | score | without texts |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    total: Counter[str] = Counter()
    for module, one in known.items():
        of_texts = sum(told.startswith("string ") for told in one["killed"].values())
        left = sum(survivor["operator"] != "string" for survivor in one["survived"])
        count = Counter(
            killed=len(one["killed"]),
            survived=len(one["survived"]),
            mutants=one.get("mutants", 0) - len(one["none"]),
            code=len(one["killed"]) - of_texts,
            left=left,
        )
        total += count
        rows.append(_row(f"`{module}`", count))
    return "\n".join([*rows, _row("all", total)])


def _row(name: str, count: Counter[str]) -> str:
    everything, code = count["killed"] + count["survived"], count["code"] + count["left"]
    return (
        f"| {name} | {count['mutants']} | {everything} | {count['killed']} | {count['survived']}"
        f" | {100 * count['killed'] / max(1, everything):.1f} %"
        f" | {100 * count['code'] / max(1, code):.1f} % |"
    )


def _part(text: str) -> tuple[int, int]:
    """``2/8`` as the place of a part and the number of parts; each has results of its own."""
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r} must be like 2/8")
    return int(part) - 1, int(parts)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutation", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="warmcc.digest, for example")
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the results are kept")
    parser.add_argument("--again", action="store_true", help="run those that survived again")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after this time")
    parser.add_argument("--part", type=_part, default=(0, 1), metavar="I/N", help="the I-th of N")
    parser.add_argument("--slow", type=float, default=0.3, help="leave out slower tests")
    given = parser.parse_args(arguments)
    modules = given.modules or list(TESTS)
    end = time.monotonic() + given.seconds
    results = json.loads(given.json.read_text()) if given.json.exists() else {}

    def done() -> bool:
        draft = given.json.with_suffix(".draft")
        draft.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        draft.replace(given.json)
        return time.monotonic() > deadline

    for index, module in enumerate(modules):
        left = end - time.monotonic()
        deadline = time.monotonic() + left / (len(modules) - index)  # an equal share for each
        subject = Subject(module, results.setdefault(module, {}))
        part, parts = given.part
        if (waiting := subject.waiting(given.again)[part::parts]) and left > 0:
            subject.run(waiting, given.slow, done)
        if more := len(subject.waiting(again=False)):
            print(f"{module}: {more} mutants are left; run this again")
    print(table(results))


if __name__ == "__main__":
    main()

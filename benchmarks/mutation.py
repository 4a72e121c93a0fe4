"""How many wrong changes the unit tests notice: ``python -m benchmarks.mutation MODULE…``.

pytest collects the unit tests of a module, once. Each mutant (mutants.py) then has a fork of that
process, which puts the mutant in place of the module and runs the tests. No file is changed. A
mutant is killed when a test fails, when it cannot be imported, or when the tests take far longer
than without it. All others survive.

``TESTS`` says which tests a module has. A mutant in a function needs only those that call the
function; a first run without a mutant tells which, and how long each takes. Those that killed other
mutants of the function run first, then the fastest. Tests that take longer than ``--slow`` seconds are left out.

Class bodies outside of methods are not mutated: other modules hold the classes.

Results are kept in ``--json`` after each mutant. A run that is stopped goes on where it was, unless
the module has changed. ``--again`` repeats the mutants that survived, after the tests have changed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import json
import os
import select
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import Any

import pytest

from benchmarks import mutants

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results/mutation.json"
STORE = (
    "test_store", "test_store_damage", "test_store_disk", "test_store_eviction", "test_store_rules",
)  # fmt: skip
TESTS = {  # of each module, the files of unit tests that run for it
    "warmcc.digest": ("test_digest",),
    "warmcc.daemon.plan.keys": ("test_request_key",),
    "warmcc.daemon.closure.closure": (
        "test_closure",
        "test_closure_records",
        "test_closure_checks",
    ),
    "warmcc.daemon.store.store": STORE,
    "warmcc.daemon.store.tree": STORE,
    "warmcc.daemon.toolchain.nvcc_flags": ("test_nvcc_flags",),
    "warmcc.daemon.cuda.eligibility": ("test_eligibility",),
    "warmcc.daemon.plan.policy": ("test_policy_flags", "test_policy_fields"),
}
# Without what costs time in each fork: fixtures of daemons, and pretty reports of failures.
_OPTIONS = [
    "-qs", "--noconftest", "-p", "tests.unit.conftest", "-p", "no:cacheprovider",
    "-p", "no:hypothesispytest", "--assert=plain", "--tb=native", "--durations=0",
    f"--rootdir={ROOT}", "-c", f"{ROOT}/pyproject.toml",
]  # fmt: skip
_PATIENCE = 10.0  # seconds for a mutant, and five times what its tests take without it


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


def _place(functions: list[tuple[int, int]], line: int) -> int | None:
    """Where the function begins that a line is in; None for a line of the module itself."""
    return next((first for first, last in functions if first <= line <= last), None)


# ---------------------------------------------------------------------- a mutant in place


def put_in_place(source: str, module: ModuleType) -> None:
    """Have a module behave as another source of it, also for those who imported its parts.

    Functions and methods get the code of the new ones; classes stay the same objects; all else is
    new in the module.
    """
    before = dict(vars(module))
    exec(compile(source, module.__file__ or "", "exec"), vars(module))
    for name, old in before.items():
        new = vars(module).get(name)
        if getattr(old, "__module__", None) != module.__name__ or new is old:
            continue
        if isinstance(old, type) and isinstance(new, type):
            for method in vars(old).keys() & vars(new).keys():
                if not _same_code(vars(old)[method], vars(new)[method]):
                    setattr(old, method, vars(new)[method])
            setattr(module, name, old)
        else:
            _same_code(old, new)


def _same_code(old: Any, new: Any) -> bool:
    """Give a function the code of another, where both are functions; False when it cannot be."""
    for inner in ("fget", "__func__", "__wrapped__"):
        if getattr(old, inner, None) is not None and getattr(new, inner, None) is not None:
            return _same_code(getattr(old, inner), getattr(new, inner))
    if isinstance(old, FunctionType) and isinstance(new, FunctionType):
        if old.__code__.co_freevars != new.__code__.co_freevars:
            return False
        old.__code__, old.__defaults__ = new.__code__, new.__defaults__
        old.__kwdefaults__ = new.__kwdefaults__
    return True


def in_a_fork(work: Callable[[], Any], seconds: float) -> Any:
    """What ``work`` gives in a fork; None when it dies or takes too long. Its output is lost."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            nowhere = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(nowhere, descriptor)
            answer = json.dumps(work())
        except BaseException:
            answer = json.dumps({"error": traceback.format_exc()})
        with open(writing, "w") as file:
            file.write(answer)
        os._exit(0)
    os.close(writing)
    said, deadline = b"", time.monotonic() + seconds
    with open(reading, "rb", buffering=0) as file:
        while select.select([file], [], [], max(0.0, deadline - time.monotonic()))[0]:
            if not (block := file.read(1 << 16)):
                break
            said += block
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return json.loads(said) if said else None


# ---------------------------------------------------------------------- tests


class Tests:
    """A plugin of pytest that runs ``work`` when all tests are collected, and not the tests."""

    def __init__(self, work: Callable[[Tests], None]) -> None:
        self._work = work
        self._items: dict[str, pytest.Item] = {}
        self._failed: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("the tests cannot be collected")
        self._items = {item.nodeid: item for item in session.items}
        self._work(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.append(report.nodeid)

    def first_failure(
        self, names: Sequence[str], around: Callable[[pytest.Item], Any] = contextlib.nullcontext
    ) -> str | None:
        """Run tests until one fails; its name. To be called in a fork, once."""
        items = [self._items[name] for name in names]
        for item, following in zip(items, [*items[1:], None], strict=True):
            with around(item):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed:
                return self._failed[0]
        return None

    def measured(self, file: Path, functions: list[tuple[int, int]]) -> dict[str, dict[str, Any]]:
        """Of each test its ``seconds``; where the functions begin that it ``calls``, of those of
        ``file``; and whether it ``forks``, so that it may call others unseen."""

        def work() -> dict[str, Any]:
            watch = _Watch(file, functions)
            return {"failed": self.first_failure(list(self._items), watch), "tests": watch.tests}

        said = in_a_fork(work, 600.0) or {}
        if said.get("failed", said) is not None:
            raise SystemExit(f"the tests fail, or take ten minutes, without a mutant: {said}")
        tests: dict[str, dict[str, Any]] = said["tests"]
        return tests


class _Watch:
    """Notes what happens while a test runs."""

    def __init__(self, file: Path, functions: list[tuple[int, int]]) -> None:
        self._file, self._functions = os.path.realpath(file), functions
        self._files: dict[str, bool] = {}  # whether a name that code bears leads to ``file``
        self._lines: set[int] = set()
        self._forks = 0
        self.tests: dict[str, dict[str, Any]] = {}
        os.register_at_fork(before=self._forked)

    def _forked(self) -> None:
        self._forks += 1

    def _trace(self, frame: FrameType, _event: str, _argument: Any) -> None:
        name = frame.f_code.co_filename
        if name not in self._files:
            self._files[name] = os.path.realpath(name) == self._file
        if self._files[name]:
            self._lines.add(frame.f_code.co_firstlineno)

    @contextlib.contextmanager
    def __call__(self, item: pytest.Item) -> Any:
        self._lines, self._forks, began = set(), 0, time.monotonic()
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        yield
        sys.settrace(None)
        places = {_place(self._functions, line) for line in self._lines}
        self.tests[item.nodeid] = {
            "seconds": time.monotonic() - began,
            "calls": sorted(place for place in places if place is not None),
            "forks": self._forks > 0,
        }


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
        self.known = known
        self._kills: dict[int | None, Counter[str]] = defaultdict(Counter)  # by function and test

    def waiting(self, again: bool) -> list[mutants.Mutant]:
        """The mutants that are to be run."""
        survived = {one["name"] for one in self.known["survived"]}
        done = {*self.known["killed"], *self.known["none"], *(() if again else survived)}
        return [one for one in self._mutants if one.name not in done]

    def run(
        self,
        waiting: list[mutants.Mutant],
        slow: float,
        done: Callable[[], bool],
    ) -> None:
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
                    place = _place(self._functions, mutant.line)
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

        said = in_a_fork(work, _PATIENCE + 5 * sum(seconds.values()))
        if said is None:
            return "time"
        failed: str | None = said.get("failed", "import")
        kills.update([failed] if failed else [])
        return failed

    def _note(self, mutant: mutants.Mutant, killer: str | None) -> None:
        survived = [one for one in self.known["survived"] if one["name"] != mutant.name]
        if killer is not None:
            test = killer.rpartition("::")[2].partition("[")[0]
            self.known["killed"][mutant.name] = f"{mutant.operator} {test}"
        else:
            told = {"name": mutant.name, "operator": mutant.operator, "line": mutant.line}
            survived.append({**told, "change": mutant.lines()})
        self.known["survived"] = sorted(survived, key=lambda one: one["line"])


def table(known: dict[str, Any]) -> str:
    """The figures as a table in Markdown. Mutants of texts are those that change only a string."""
    rows = [
        "| module | mutants | killed | survived | score | without texts |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    total: Counter[str] = Counter()
    for module, one in known.items():
        of_texts = sum(told.startswith("string ") for told in one["killed"].values())
        left = sum(survivor["operator"] != "string" for survivor in one["survived"])
        count = Counter(
            killed=len(one["killed"]),
            survived=len(one["survived"]),
            code=len(one["killed"]) - of_texts,
            left=left,
        )
        total += count
        rows.append(_row(f"`{module}`", count))
    return "\n".join([*rows, _row("all", total)])


def _row(name: str, count: Counter[str]) -> str:
    everything, code = count["killed"] + count["survived"], count["code"] + count["left"]
    return (
        f"| {name} | {everything} | {count['killed']} | {count['survived']}"
        f" | {100 * count['killed'] / max(1, everything):.1f} %"
        f" | {100 * count['code'] / max(1, code):.1f} % |"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutation", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="warmcc.digest, for example")
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the results are kept")
    parser.add_argument("--again", action="store_true", help="run those that survived again")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after this time")
    parser.add_argument("--slow", type=float, default=0.3, help="leave out slower tests")
    given = parser.parse_args(arguments)
    deadline = time.monotonic() + given.seconds
    results = json.loads(given.json.read_text()) if given.json.exists() else {}

    def done() -> bool:
        given.json.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        return time.monotonic() > deadline

    for module in given.modules or TESTS:
        subject = Subject(module, results.setdefault(module, {}))
        if (waiting := subject.waiting(given.again)) and time.monotonic() < deadline:
            subject.run(waiting, given.slow, done)
        if left := len(subject.waiting(again=False)):
            print(f"{module}: {left} mutants are left; run this again")
    print(table(results))


if __name__ == "__main__":
    main()

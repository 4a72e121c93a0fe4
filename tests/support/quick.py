"""``make quick``: the tests of what was changed, in under a minute.

``python -m tests.support.quick [FILE...]``: FILE is what was changed; without one, all that differs
from the branch ``main`` (from the last commit, on ``main`` itself). Chosen are the unit tests that
import a changed module, directly or through others, and then, until the time is over, the other
tests that import it, are named after it or mention its file. A change of anything but a module
chooses all unit tests.
"""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.support import ROOT

SIDES = {"client": "warmcc.client", "daemon": "warmcc.daemon", "warmcc": "warmcc"}
QUICK = ("tests/unit", "tests/benchmarks")  # need no daemon, or one that makes nothing warm
OTHERS = ("tests/integration", "tests/live", "tests/parity", "tests/security", "tests/fault")
# They read all modules, and import none.
ALWAYS = ("tests/unit/test_rooms.py", "tests/unit/test_imports.py", "tests/unit/test_examples.py")
IGNORED = (".md", ".png", ".svg", ".json")
SECONDS = 45  # and the minute includes collecting them


def name_of(path: Path) -> str:
    """The module that a file of the checkout is imported as."""
    top, *rest = path.relative_to(ROOT).with_suffix("").parts
    names = [SIDES.get(top, top), *rest]
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


@functools.cache
def modules() -> dict[str, Path]:
    """All modules of the checkout, by name."""
    tops = (*SIDES, "tests", "benchmarks")
    found = [path for top in tops for path in sorted((ROOT / top).rglob("*.py"))]
    return {name_of(path): path for path in found}


@functools.cache
def graph() -> dict[str, set[str]]:
    """Which modules each one imports."""
    return {name: set(imported(path, modules())) - {name} for name, path in modules().items()}


def imported(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """The modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        yield from (name for name in names if name in known)


def dependents(changed: set[str], imports: dict[str, set[str]]) -> set[str]:
    """What imports one of these modules, directly or through others; and the modules themselves."""
    importers: dict[str, set[str]] = {}
    for name, others in imports.items():
        for other in others:
            importers.setdefault(other, set()).add(name)
    found, new = set(changed), set(changed)
    while new:
        new = {name for one in new for name in importers.get(one, ())} - found
        found |= new
    return found


def choose(paths: Iterable[Path]) -> tuple[list[Path], list[Path]]:
    """The quick tests of these changed files, and the other ones."""
    known = modules()
    tests = {p: n for n, p in known.items() if p.name.startswith("test_")}
    quick = [p for p in tests if str(p.relative_to(ROOT)).startswith(QUICK)]
    others = [p for p in tests if str(p.relative_to(ROOT)).startswith(OTHERS)]
    counted = [p for p in paths if p.suffix not in IGNORED]
    if not counted:
        return [], []
    by_path = {path: name for name, path in known.items()}
    if not all(path in by_path for path in counted):
        return quick, []
    changed = {by_path[path] for path in counted}
    reached = dependents(changed, graph())
    return (
        [path for path in quick if tests[path] in reached or str(path.relative_to(ROOT)) in ALWAYS],
        [path for path in others if _is_about(path, counted, graph()[tests[path]] & changed)],
    )


def _is_about(test: Path, changed: list[Path], imports: set[str]) -> bool:
    text = test.read_text(encoding="utf-8")
    return bool(imports) or any(
        path == test
        or path.stem == test.stem.removeprefix("test_")
        or str(path.relative_to(ROOT)) in text
        for path in changed
    )


def differing() -> list[Path]:
    """What differs from the branch ``main``, or on it from the last commit."""

    def git(*words: str) -> list[str]:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.splitlines() if done.returncode == 0 else []

    base = (git("merge-base", "main", "HEAD") or ["HEAD"])[0]
    names = [*git("diff", "--name-only", base), *git("ls-files", "-o", "--exclude-standard")]
    return [path for name in names if (path := ROOT / name).exists()]


def main(words: list[str]) -> int:
    files = [Path(word).resolve() for word in words if not word.startswith("-")]
    quick, others = choose(files or differing())
    if not quick and not others:
        print("nothing was changed that a test is about")
        return 0
    named = [str(path.relative_to(ROOT)) for path in [*quick, *others]]
    print(f"{len(quick)} modules of quick tests, {len(others)} of others within the minute")
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "-m", "not slow",
               "-q", "-rfE", "--within", str(SECONDS), *named]  # fmt: skip
    return subprocess.run(command, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

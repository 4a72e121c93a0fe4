"""One call of stock torch in a process that does nothing else.

Stand-alone (standard library and torch), as it runs on the caller's Python without anything that
would be counted as stock's: ``python child.py JOB``. JOB is a file with JSON: ``call``,
``arguments``, ``folder`` (the build directory), ``mode`` and ``answer``, the file that receives
what was found. The modes:

- ``plan``: all but ninja and the import, so that the folder has what ninja would be given.
- ``profile``: the same, with everything counted that Python does.
- ``build``: the call as it is, with the times of its parts.
"""

from __future__ import annotations

import time

STARTED = time.monotonic()

import contextlib  # noqa: E402
import inspect  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import resource  # noqa: E402
import sys  # noqa: E402
from typing import Any  # noqa: E402

_MOST_ROWS = 25


class Counts:
    """What Python does: files that are opened, folders that are listed, and calls of ``stat``.
    The latter have no audit event, so the functions are replaced."""

    def __init__(self) -> None:
        self.opened = self.listed = self.looked = self.imported = 0
        self._on = False
        sys.addaudithook(self._hook)
        import posix

        for module in (posix, os):
            for name in ("stat", "lstat"):
                setattr(module, name, self._counting(getattr(module, name)))

    def _hook(self, event: str, _arguments: object) -> None:
        if self._on:
            self.opened += event == "open"
            self.listed += event in ("os.listdir", "os.scandir")
            self.imported += event == "import"

    def _counting(self, function: Any) -> Any:
        def call(*given: Any, **more: Any) -> Any:
            self.looked += self._on
            return function(*given, **more)

        return call

    def take(self, *, on: bool) -> dict[str, int]:
        """What was counted since the last time."""
        names = ("opened", "listed", "looked", "imported")
        found = {name: int(getattr(self, name)) for name in names}
        for name in names:
            setattr(self, name, 0)
        self._on = on
        return found


def _functions(profile: Any) -> list[dict[str, Any]]:
    """The rows of cProfile with the most time of their own."""
    import pstats

    rows = pstats.Stats(profile).stats.items()  # type: ignore[attr-defined]
    found = [
        {"file": file, "line": line, "name": name, "calls": calls, "own": own, "total": total}
        for (file, line, name), (_, calls, own, total, _) in rows
    ]
    return sorted(found, key=lambda row: -row["own"])[:_MOST_ROWS]


def _call(extension: Any, job: dict[str, Any]) -> None:
    """Call ``load`` or ``load_inline`` with those of the arguments that this torch has."""
    function = getattr(extension, job["call"])
    known = inspect.signature(function).parameters
    function(**{name: value for name, value in job["arguments"].items() if name in known})


def _without_ninja(extension: Any) -> None:
    def nothing(*_given: object, **_more: object) -> None:
        pass

    for name in ("_run_ninja_build", "_import_module_from_library", "verify_ninja_availability"):
        setattr(extension, name, nothing)


def _marked(extension: Any, marks: dict[str, Any]) -> None:
    """Have ninja's run write down its times, and what its processes took."""
    stocks = extension._run_ninja_build

    def run(*given: Any, **more: Any) -> Any:
        marks["ninja"] = time.monotonic()
        try:
            return stocks(*given, **more)
        finally:
            marks["built"] = time.monotonic()
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            marks["children"] = [used.ru_utime, used.ru_stime]

    extension._run_ninja_build = run


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Do a job. Raises whatever torch raises."""
    marks: dict[str, Any] = {"started": STARTED}
    counts = profile = None
    if job["mode"] == "profile":
        import cProfile

        counts, profile = Counts(), cProfile.Profile()
        counts.take(on=True)
        profile.enable()
    import torch
    from torch.utils import cpp_extension

    marks["imported"] = time.monotonic()
    found: dict[str, Any] = {"torch": torch.__version__, "marks": marks}
    if profile is not None and counts is not None:
        profile.disable()
        found["import"] = {"counts": counts.take(on=True), "functions": _functions(profile)}
        profile = type(profile)()
        profile.enable()
    if job["mode"] == "build":
        _marked(cpp_extension, marks)
    else:
        _without_ninja(cpp_extension)
    parameters = inspect.signature(cpp_extension.load_inline).parameters
    found["no_implicit_headers"] = "no_implicit_headers" in parameters
    try:
        _call(cpp_extension, job)
    finally:
        marks["returned"] = time.monotonic()
    if profile is not None and counts is not None:
        profile.disable()
        found["call"] = {"counts": counts.take(on=False), "functions": _functions(profile)}
    found["include"] = [os.path.abspath(path) for path in cpp_extension.include_paths("cpu")]
    return found


def main() -> None:
    del sys.path[0]  # this file's folder
    with open(sys.argv[1], encoding="utf-8") as file:
        job = json.load(file)
    try:
        found = run(job)
    except BaseException as error:
        found = {"error": f"{type(error).__name__}: {error}"}
    draft = job["answer"] + ".draft"
    with open(draft, "w", encoding="utf-8", errors="replace") as file:
        json.dump(found, file)
    with contextlib.suppress(OSError):
        os.replace(draft, job["answer"])


if __name__ == "__main__":
    main()

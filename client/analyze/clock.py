"""Where a compiler's front end spends its time: by header, and by instantiation.

A plugin of g++ (``clock.cc``) measures it in one compile with stock's own command. It is compiled
with the user's g++ and tried on a small unit before it is used; where that fails, ``-ftime-report``
is all there is. clang says it itself (``clang.py``).
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from warmcc import paths
from warmcc.client.analyze import clang
from warmcc.client.analyze.report import Template
from warmcc.client.stock.processes import run
from warmcc.client.stock.replay import Command

_SOURCE = Path(__file__).with_name("clock.cc")
_SECONDS = 900.0
_PHASE = re.compile(
    r"^ (phase [^:]+?|template instantiation|preprocessing|name lookup|overload resolution"
    r"|garbage collection|TOTAL) *:\s+(.*)$",
    re.M,
)
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)(?: \( *\d+%\))?")
_MOST, _LONGEST = 40, 300
# In the trial, an instance of `outer` asks for one of `twice`, whose body is in the header.
_TRIAL = (
    '#include "trial.h"\ntemplate <class T> T outer(T x) { return twice(x); }\n'
    "int f() { return outer<int>(2); }\n"
)
_HEADER = (
    "#pragma once\ntemplate <class T> T twice(T x) {\n"
    + "".join(f"  struct s{i} {{ T a, b; }} v{i}{{x, x}}; x += v{i}.a;\n" for i in range(400))
    + "  return x;\n}\n"
)


@dataclass(frozen=True)
class Clocked:
    """``files`` are seconds of parsing by path; ``phases`` are -ftime-report's, wall; ``seconds``
    of the whole compile; ``why_not`` says why there is less than that."""

    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    files: dict[str, float] = field(default_factory=dict)
    templates: list[Template] = field(default_factory=list)
    why_not: str = ""


def measure(command: Command, environment: Mapping[str, str]) -> Clocked:
    """Compile a unit once more, under the clock."""
    folder = command.folder
    variables = {**environment, "LC_ALL": "C.UTF-8"}
    if "clang" in _run([command.compiler, "--version"], folder, variables)[1]:
        return _of_clang(command, variables)
    plugin, why_not, asks = _plugin(command, variables)
    output = folder / "clock.txt"
    words = [
        command.compiler, *command.flags, *_options(plugin, output), "-ftime-report", "-c",
        command.source, "-o", str(folder / "clocked.o"),
    ]  # fmt: skip
    began = time.monotonic()
    code, said = _run(words, folder, variables)
    took = time.monotonic() - began
    if code != 0:
        return Clocked(why_not=f"the compile under the clock failed: {said[-300:]}")
    found = Clocked(took, phases(said), why_not=why_not)
    if plugin is None:
        return found
    files, templates = read(output.read_text(encoding="utf-8", errors="replace"), asks=asks)
    return Clocked(took, found.phases, files, templates, why_not)


def _of_clang(command: Command, variables: Mapping[str, str]) -> Clocked:
    made = command.folder / "clocked.o"
    words = [command.compiler, *command.flags, *clang.OPTIONS, "-c", command.source]
    began = time.monotonic()
    code, said = _run([*words, "-o", str(made)], command.folder, variables)
    took = time.monotonic() - began
    try:
        found = clang.read(made.with_suffix(".json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return Clocked(why_not=f"clang writes no trace ({error}): {said[-300:]}")
    if code != 0:
        return Clocked(why_not=f"the compile under the clock failed: {said[-300:]}")
    return Clocked(took, found.phases, found.files, found.templates[:_MOST])


def _options(plugin: Path | None, output: Path) -> list[str]:
    return [] if plugin is None else [f"-fplugin={plugin}", f"-fplugin-arg-clock-output={output}"]


def _plugin(command: Command, variables: Mapping[str, str]) -> tuple[Path | None, str, bool]:
    """The plugin, or why there is none; and whether it knows who asks for an instantiation."""
    folder = command.folder
    made = folder / "clock.so"
    code, said = _run(
        [command.compiler, "-shared", "-fPIC", "-fno-rtti", "-fno-exceptions", "-O1",
         f"-iquote{paths.GCC_PLUGIN.parent}", str(_SOURCE), "-o", str(made)],
        folder, variables,
    )  # fmt: skip
    if code != 0:
        return None, f"no plugin can be compiled: {said.strip()[-200:]}", False
    (folder / "trial.h").write_text(_HEADER)
    (folder / "trial.cpp").write_text(_TRIAL)
    output = folder / "trial.txt"
    words = [command.compiler, *_options(made, output), "-c", "trial.cpp", "-o", "trial.o"]
    code, said = _run(words, folder, variables)
    if code != 0 or not output.exists():
        return None, f"this compiler takes no plugin: {said.strip()[-200:]}", False
    files, templates = read(output.read_text(errors="replace"), asks=True)
    if not any(path.endswith("trial.h") for path in files):
        return None, "this compiler's plugins do not see where it parses", False
    asks = any("twice" in one.name and "outer" in one.asked for one in templates)
    return made, "", asks


def _run(words: list[str], folder: Path, variables: Mapping[str, str]) -> tuple[int, str]:
    try:
        return run(words, folder, variables, _SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)


def phases(report: str) -> dict[str, float]:
    r"""Seconds (wall) in the table of ``-ftime-report``.

    >>> phases(" phase parsing   :   1.50 ( 60%)   0.20 ( 50%)   1.75 ( 55%)   90M ( 70%)\n")
    {'phase parsing': 1.75}
    """
    found = {}
    for name, row in _PHASE.findall(report):
        numbers = _NUMBER.findall(row)
        if len(numbers) >= 3:
            found[name.strip()] = float(numbers[2])
    return found


def read(text: str, *, asks: bool) -> tuple[dict[str, float], list[Template]]:
    r"""The plugin's output: seconds by file, and the dearest templates. ``asks``: it knows who
    asks.

    >>> read("F\t0.5\t/a/../b.h\nT\t0.2\tT f(T) [with T = int]\tg() [with T = int]\n", asks=True)
    ({'/b.h': 0.5}, [Template(name='T f(T)', count=1, seconds=0.2, asked='g()')])
    """
    files: dict[str, float] = {}
    templates: dict[str, Template] = {}
    for line in text.splitlines():
        kind, *row = line.split("\t", 4)
        if kind == "F" and len(row) == 2:
            path = os.path.normpath(row[1])
            files[path] = files.get(path, 0.0) + float(row[0])
        elif kind == "T" and len(row) == 3:
            name, asked = (text.partition(" [with ")[0][:_LONGEST] for text in row[1:])
            known = templates.setdefault(name, Template(name, 0, 0.0, asked if asks else ""))
            known.count += 1
            known.seconds += float(row[0])
    dearest = sorted(templates.values(), key=lambda one: -one.seconds)[:_MOST]
    return files, dearest

"""The headers that a unit reads: the tree of includes, with times and sizes.

The compiler's own preprocessor lists a header (``-H``) when it opens it, and the moment at which
that line arrives is written down: from one line to the next is the time of a header, with what its
includer still has to do after it. Sizes are those of the text that is left of a header.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from warmcc.client.analyze.report import Header, Node
from warmcc.client.stock import nvcc
from warmcc.client.stock.processes import end, run
from warmcc.client.stock.replay import Command

_FORCED = "cuda_runtime.h"
_SECONDS = 60.0
_ENTERED = re.compile(rb"^(\.+) (.+)$")
_MARKER = re.compile(r'^# \d+ "((?:[^"\\]|\\.)*)"')
_CUDA = re.compile(r"/cuda(?:-[\d.]+)?/|/nvidia/|/crt/|cuda_toolkit|/cccl/|/nv/target")
_PYTHON = re.compile(r"/python3\.\d+t?/[^/]*\.h$|/python3\.\d+t?/(?:internal|cpython)/")
_STANDARD = re.compile(r"^/usr/(?:local/)?(?:include|lib)/|/lib/gcc/|/c\+\+/")

# Where compilers look for headers
_SEARCHED = re.compile(
    r"^.*/include/(?:[\w.]+-linux-gnu/)?(?:c\+\+/[\d.]+/)?(?:[\w.]+-linux-gnu/)?(?:python3\.\d+t?/)?"
)


class Read(NamedTuple):
    """``seconds`` of the whole run."""

    headers: list[Header]
    tree: list[Node]
    seconds: float


def read(
    command: Command, environment: Mapping[str, str], include: Sequence[Path], own: Sequence[Path]
) -> Read:
    """Preprocess a unit; ``include`` are torch's folders and ``own`` the user's. Raises OSError,
    RuntimeError."""
    made = command.folder / "headers.ii"
    words = [command.compiler, *command.flags, "-E", command.source, "-o", str(made)]
    if command.is_cuda:
        words = _of_nvcc(words, command, environment)
    lines, began, seconds = _timed([*words, "-H"], command, environment)
    tree, order = _tree(lines, began + seconds, os.path.normpath(command.source))
    sizes = _sizes(made)
    made.unlink(missing_ok=True)
    times: defaultdict[str, float] = defaultdict(float)
    counts = Counter(path for path, _, _ in tree)
    for path, _, took in tree:
        times[path] += took
    owner = owners(include, own)
    headers = [
        Header(path, shown(path, include), owner(path), counts[path], sizes.get(path, 0),
               times[path])
        for path in order
    ]  # fmt: skip
    places = {path: place for place, path in enumerate(order)}
    return Read(headers, [Node(places[path], parent, took) for path, parent, took in tree], seconds)


def _of_nvcc(words: list[str], command: Command, environment: Mapping[str, str]) -> list[str]:
    """The first call of the host's preprocessor that nvcc would make. It forces CUDA's header in,
    and does not list what comes so: a file in front of the unit includes it instead. Raises
    OSError, RuntimeError."""
    front = command.folder / "headers.cu"
    front.write_text(f'#include "{_FORCED}"\n#include "{command.source}"\n')
    _, said = run([*words, "--dryrun"], command.folder, environment, _SECONDS)
    for step in nvcc.steps(said, environment):
        if "-E" in step and "-include" in step and step[step.index("-include") + 1] == _FORCED:
            at = step.index("-include")
            return [str(front) if word == command.source else word
                    for word in step[:at] + step[at + 2 :]]  # fmt: skip
    raise RuntimeError(f"nvcc's plan has no call of a preprocessor: {said[-500:]}")


def _timed(
    words: list[str], command: Command, environment: Mapping[str, str]
) -> tuple[list[tuple[float, bytes]], float, float]:
    """Lines of a command's standard error with the moments of their arrival; the command's start
    and its time."""
    began = time.monotonic()
    child = subprocess.Popen(
        words, cwd=command.folder, env={**environment, "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stderr is not None
    lines: list[tuple[float, bytes]] = []
    rest = b""
    try:
        while block := os.read(child.stderr.fileno(), 1 << 16):
            now = time.monotonic()
            *whole, rest = (rest + block).split(b"\n")
            lines += [(now, line) for line in whole]
    except BaseException:
        end(child.pid)
        raise
    finally:
        child.stderr.close()
        child.wait()
    took = time.monotonic() - began
    if child.returncode != 0:
        said = b"\n".join(line for _, line in lines if not line.startswith(b".")).decode()
        raise RuntimeError(f"{words[0]} cannot preprocess it: {said[-800:]}")
    return lines, began, took


def _tree(
    lines: list[tuple[float, bytes]], ended: float, source: str
) -> tuple[list[tuple[str, int, float]], list[str]]:
    """The nodes (path, parent, seconds), and the paths in the order of their opening. What the
    ``source`` includes is at the top, also where another file includes the source."""
    entered = [
        (when, len(match[1]), os.path.normpath(os.fsdecode(match[2])))
        for when, line in lines
        if (match := _ENTERED.match(line))
    ]
    moments = [when for when, _, _ in entered] + [ended]
    above: list[int] = []
    found: list[tuple[str, int, float]] = []
    for place, (when, depth, path) in enumerate(entered):
        del above[depth - 1 :]
        if path == source:
            above.append(-1)
            continue
        above.append(len(found))
        parent = above[-2] if len(above) > 1 else -1
        found.append((path, parent, moments[place + 1] - when))
    return found, list(dict.fromkeys(path for path, _, _ in found))


def _sizes(made: Path) -> Counter[str]:
    """Bytes of preprocessed text by file, without blank lines."""
    found: Counter[str] = Counter()
    current = ""
    with open(made, encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("# ") and (match := _MARKER.match(line)):
                current = os.path.normpath(match[1])
            elif len(line) > 1:
                found[current] += len(line)
    return found


def owners(include: Sequence[Path], own: Sequence[Path]) -> Callable[[str], str]:
    """Says whose a header is.

    >>> whose = owners([Path("/v/torch/include")], [Path("/home/u")])
    >>> whose("/v/torch/include/c10/a.h"), whose("/usr/include/stdio.h"), whose("/home/u/b.h")
    ('torch', 'standard library', 'user')
    """
    torchs = tuple(f"{path}/" for path in include)
    users = tuple(f"{path}/" for path in own)

    def owner(path: str) -> str:
        if path.startswith(torchs):
            return "torch"
        if path.startswith(users):
            return "user"
        if _CUDA.search(path):
            return "CUDA"
        if _PYTHON.search(path):
            return "Python"
        return "standard library" if _STANDARD.search(path) else "other"

    return owner


def shown(path: str, include: Sequence[Path]) -> str:
    """A header as an include names it, where that is known.

    >>> shown("/usr/include/c++/12/bits/move.h", []), shown("/home/u/b.h", [])
    ('bits/move.h', '/home/u/b.h')
    """
    for folder in sorted(include, key=lambda one: -len(str(one))):
        if path.startswith(f"{folder}/"):
            return path[len(str(folder)) + 1 :]
    return _SEARCHED.sub("", path)

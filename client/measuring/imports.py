"""What imports cost, module by module: CPython measures it (``-X importtime``) in a new process.

A second process imports the same and counts the files that are opened and the folders that are
listed. A third only takes the time: what measuring adds is the difference.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from warmcc.errors import RequestError

SECONDS = 300.0  # that one process may take
_LINE = re.compile(r"^import time:\s+(\d+) \|\s+(\d+) \| ((?:  )*)(\S.*)$")
_BEGIN, _END = "warmcc: the imports begin", "warmcc: the imports have ended"
# Only what a Python has before its script is imported before the measurement.
_CHILD = f"""
import os, sys, time
number, count, names = int(sys.argv[1]), sys.argv[2] == "count", sys.argv[3:]
sys.argv[1:] = []
found, files = {{}}, {{}}
if count:
    import _frozen_importlib
    def hook(event, arguments, code=_frozen_importlib._find_and_load.__code__,
             kinds={{"open": 0, "os.listdir": 1, "os.scandir": 1}}, frame_of=sys._getframe):
        place = kinds.get(event)
        if place is not None:
            frame = frame_of()
            while frame is not None and frame.f_code is not code:
                frame = frame.f_back
            name = "" if frame is None else frame.f_locals.get("name", "")
            files.setdefault(name, [0, 0])[place] += 1
    sys.addaudithook(hook)
os.write(2, {_BEGIN + chr(10)!r}.encode())
began = time.perf_counter()
try:
    for name in names:
        __import__(name)
except BaseException as error:
    found["error"] = f"{{type(error).__name__}}: {{error}}"
found["seconds"] = time.perf_counter() - began
os.write(2, {_END + chr(10)!r}.encode())
found["files"] = dict(files)
found["modules"] = len(sys.modules)
found["threads"] = len(os.listdir("/proc/self/task"))
with open("/proc/self/statm") as file:
    found["memory"] = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
import json
with open(number, "w") as file:
    json.dump(found, file)
os._exit(0)
"""


@dataclass
class Module:
    """One import. ``own`` and ``whole`` are seconds, without and with the imports in it; ``opened``
    and ``listed`` count files and folders, without those of the imports in it."""

    name: str
    own: float
    whole: float
    children: list[Module] = field(default_factory=list)
    opened: int = 0
    listed: int = 0

    @property
    def package(self) -> str:
        return self.name.partition(".")[0]


@dataclass(frozen=True)
class Imports:
    """``seconds`` is the time without measuring each module, a median; ``measured`` the time of
    the run that ``roots`` are of. ``memory`` is what the process held, in bytes."""

    names: list[str]
    seconds: float
    measured: float
    memory: int
    threads: int
    roots: list[Module]

    def all(self) -> Iterator[Module]:
        """All modules, each before those that it imports."""
        waiting = self.roots[::-1]
        while waiting:
            yield (one := waiting.pop())
            waiting += reversed(one.children)


def measure(python: str, names: Sequence[str], repeat: int) -> Imports:
    """Import modules in new processes. Raises RequestError for what cannot be imported, or is no
    name of a module."""
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise RequestError(f"{name!r} is not the name of a module")
    _run(python, names)  # writes byte code, and fills the page cache
    plain = [_run(python, names)[0]["seconds"] for _ in range(repeat)]
    runs = [_run(python, names, "-X", "importtime") for _ in range(repeat)]
    runs.sort(key=lambda run: float(run[0]["seconds"]))
    found, text = runs[len(runs) // 2]
    counted, _ = _run(python, names, kind="count")
    roots = read(text)
    taken = Imports(
        list(names), statistics.median(plain), found["seconds"], found["memory"],
        found["threads"], roots,
    )  # fmt: skip
    for module in taken.all():
        module.opened, module.listed = counted["files"].get(module.name, (0, 0))
    return taken


def read(text: str) -> list[Module]:
    r"""The tree in what ``-X importtime`` has written between the two marks: there, a module stands
    behind those that it imports.

    >>> roots = read(f"{_BEGIN}\nimport time: 2 | 2 |   b\nimport time: 1 | 3 | a\n{_END}\n")
    >>> [(one.name, one.whole, [child.name for child in one.children]) for one in roots]
    [('a', 3e-06, ['b'])]
    """
    waiting: dict[int, list[Module]] = {}
    for line in text.partition(_BEGIN)[2].partition(_END)[0].splitlines():
        if (found := _LINE.match(line)) is not None:
            depth = len(found[3]) // 2
            module = Module(found[4], int(found[1]) / 1e6, int(found[2]) / 1e6)
            module.children = waiting.pop(depth + 1, [])
            waiting.setdefault(depth, []).append(module)
    return waiting.get(0, [])


def _run(
    python: str, names: Sequence[str], *options: str, kind: str = "time"
) -> tuple[dict[str, Any], str]:
    """One process; gives what it found, and its standard error. Raises RequestError."""
    answer = os.memfd_create("imports")
    try:
        process = subprocess.Popen(
            [python, *options, "-c", _CHILD, str(answer), kind, *names],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            pass_fds=[answer], text=True, errors="replace",
        )  # fmt: skip
        try:
            _, text = process.communicate(timeout=SECONDS)
        except BaseException:
            process.kill()
            process.communicate()
            raise
        told = os.pread(answer, os.fstat(answer).st_size, 0)
    except subprocess.TimeoutExpired:
        raise RequestError(f"the import took more than {SECONDS:.0f} s") from None
    except OSError as error:
        raise RequestError(f"{python} cannot be started: {error.strerror}") from None
    finally:
        os.close(answer)
    title = ", ".join(names)
    if not told:
        raise RequestError(
            f"the process that imported {title} ended with code {process.returncode}:\n"
            f"{text[-2000:].strip()}"
        )
    found: dict[str, Any] = json.loads(told)
    if "error" in found:
        raise RequestError(f"{title} cannot be imported: {found['error']}")
    return found, text

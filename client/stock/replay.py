"""A request as stock torch has it: its files and its build.ninja, in a folder of a request's own.

Torch itself writes them, in another process (``child.py``); ninja says what it would run. Compilers
get no ``ccache`` in front, as what is measured is a build.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from warmcc.client.stock.processes import run
from warmcc.errors import RequestError
from warmcc.request import KEYED_ENVIRONMENT, PASSED_ENVIRONMENT, Request

_CHILD = Path(__file__).with_name("child.py")
_SECONDS = 600.0
_NOT_STOCKS = {"call", "module_name", "interpreter", "environment"}
_OF_LOAD = {"sources", "is_standalone"}
_OF_INLINE = {
    "cpp_sources", "cuda_sources", "sycl_sources", "functions", "with_pytorch_error_handling",
    "use_pch", "no_implicit_headers",
}  # fmt: skip


@dataclass(frozen=True)
class Command:
    """One that ninja would run, in ``folder``: its words, what it reads, and what it makes."""

    words: tuple[str, ...]
    folder: Path
    source: str
    output: str

    @property
    def is_cuda(self) -> bool:
        return self.source.endswith(".cu")

    @property
    def compiles(self) -> bool:
        return "-c" in self.words

    @property
    def compiler(self) -> str:
        return self.words[0]

    @property
    def flags(self) -> list[str]:
        """Its words without the compiler, the files, and what writes dependencies."""
        found: list[str] = []
        rest = iter(self.words[1:])
        for word in rest:
            if word in ("-o", "-MF", "--dependency-output"):
                next(rest, "")
            elif word not in ("-c", "-MD", "-MMD", "--generate-dependencies-with-compile") and (
                word != self.source
            ):
                found.append(word)
        return found


@dataclass(frozen=True)
class Plan:
    """``texts`` are the sources that torch wrote, by name; ``include`` torch's folders of headers;
    ``no_implicit_headers``: whether its ``load_inline`` has that parameter."""

    folder: Path
    environment: Mapping[str, str]
    torch: str
    commands: tuple[Command, ...]
    texts: Mapping[str, str]
    include: tuple[Path, ...]
    no_implicit_headers: bool

    @property
    def units(self) -> list[Command]:
        return [one for one in self.commands if one.compiles]


def environment(request: Request) -> dict[str, str]:
    """The variables with which stock builds a request: those of this process, and the request's."""
    ours = {*KEYED_ENVIRONMENT, *PASSED_ENVIRONMENT}
    found = {name: value for name, value in os.environ.items() if name not in ours}
    found |= request.environment
    if shutil.which("ninja", path=found.get("PATH")) is None:
        found["PATH"] = f"{found.get('PATH', os.defpath)}:{os.path.dirname(ninja())}"
    return found | {"TORCH_NO_COMPILER_WRAPPER": "1", "WARMCC_DISABLE": "1", "CCACHE_DISABLE": "1"}


def job(request: Request, folder: Path, mode: str) -> dict[str, Any]:
    """What ``child.py`` is told. Raises RequestError for what is not a call of torch's."""
    if request.call == "compile":
        raise RequestError(f"{request.name!r} is one object of a larger build, not a call of torch")
    fields = {name: getattr(request, name) for name in request.__struct_fields__}
    left_out = _NOT_STOCKS | (_OF_INLINE if request.call == "load" else _OF_LOAD)
    arguments = {name: value for name, value in fields.items() if name not in left_out}
    arguments |= {"build_directory": str(folder), "verbose": False}
    if request.call == "load_inline":
        arguments["use_pch"] = False
    return {
        "call": request.call, "arguments": msgspec.to_builtins(arguments), "folder": str(folder),
        "mode": mode, "answer": str(folder / "answer.json"),
    }  # fmt: skip


def command(request: Request, folder: Path, mode: str) -> list[str]:
    """The command of the other process, which finds its job in the folder."""
    path = folder / f"{mode}.json"
    path.write_text(json.dumps(job(request, folder, mode)), encoding="utf-8")
    return [request.interpreter.executable, str(_CHILD), str(path)]


def answer(folder: Path, said: str) -> dict[str, Any]:
    """What the other process found. Raises RequestError with what torch, or the compiler, said."""
    try:
        found: dict[str, Any] = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise RequestError(f"stock torch's process ended early: {said.strip()[-2000:]}") from None
    if "error" in found:
        raise RequestError(f"stock torch cannot build it: {found['error'][-6000:]}")
    return found


def called(request: Request, folder: Path, mode: str) -> dict[str, Any]:
    """Have the other process do a job. Raises RequestError, OSError."""
    try:
        _, said = run(command(request, folder, mode), folder, environment(request), _SECONDS)
    except subprocess.TimeoutExpired:
        raise RequestError(f"stock torch took more than {_SECONDS:g} s to plan it") from None
    return answer(folder, said)


def plan(request: Request, folder: Path) -> Plan:
    """Have torch write what ninja would be given into an empty folder. Raises RequestError,
    OSError."""
    found = called(request, folder, "plan")
    return read(folder, environment(request), found)


def read(folder: Path, variables: Mapping[str, str], found: Mapping[str, Any]) -> Plan:
    """The plan in a folder where torch was called. Raises RequestError, OSError."""
    done = subprocess.run(
        [ninja(), "-C", str(folder), "-t", "compdb"], capture_output=True, text=True,
        env=dict(variables), stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        rows = json.loads(done.stdout)
    except ValueError:
        raise RequestError(f"ninja cannot read torch's build.ninja: {done.stderr[-500:]}") from None
    commands = tuple(
        Command(tuple(shlex.split(row["command"])), folder, row["file"], row["output"])
        for row in rows
        if row["command"]
    )
    texts = {
        path.name: path.read_text(encoding="utf-8", errors="replace")
        for path in sorted(folder.iterdir())
        if path.suffix in (".cpp", ".cu")
    }
    return Plan(
        folder, variables, str(found["torch"]), commands, texts,
        tuple(map(Path, found["include"])), bool(found["no_implicit_headers"]),
    )  # fmt: skip


def ninja() -> str:
    """ninja of PATH, as torch takes it, or of its Python package. Raises RequestError."""
    if (found := shutil.which("ninja")) is not None:
        return found
    try:
        import ninja as package

        return os.path.join(package.BIN_DIR, "ninja")
    except ImportError:
        raise RequestError("ninja was not found; install it with: pip install ninja") from None

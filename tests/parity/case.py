"""What a parity case is: a function that calls ``load`` or ``load_inline`` and says, in plain
values, what it saw.

The same function runs against stock torch (``record.py``) and against warmcc (``test_parity.py``),
in a process and a working directory of its own; what it returns must be equal. Where warmcc is
right and stock is not, the case carries a ``Difference``: what warmcc must show instead, and why.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

Observed = dict[str, Any]
Observe = Callable[["World"], Observed]

# Before these versions a call must get by without the parameter (see World.inline).
_EMPTY_EXTENSION_HEADER = "// nothing: this torch knows no no_implicit_headers\n"


@dataclass(frozen=True)
class Difference:
    """What warmcc shows under ``key`` instead of what stock shows."""

    key: str
    warmcc: Any
    reason: str


@dataclass(frozen=True)
class Case:
    """One case. ``covers`` names the parameters it is about (``load.name`` or
    ``load_inline.name``).

    stock_path        warmcc may leave the call to stock torch; for all others that is a failure
    environment       variables of the case's process; ``{folder}`` is its working directory;
                      None removes one
    needs             the result depends on these facts of the machine (see ``facts``): compared
                      only where they agree
    """

    name: str
    observe: Observe
    covers: tuple[str, ...]
    stock_path: bool = False
    environment: Mapping[str, str | None] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()

    def expected(self, recorded: Observed) -> Observed:
        """What warmcc must show, given what stock showed."""
        return recorded | {difference.key: difference.warmcc for difference in self.differences}

    def unknown_parameters(self, known: Mapping[str, set[str]]) -> list[str]:
        """Parameters that the case is about and that this torch does not have."""
        return [
            name
            for name in self.covers
            if name.partition(".")[2] not in known[name.partition(".")[0]]
        ]


CASES: list[Case] = []


def case(*covers: str, **details: Any) -> Callable[[Observe], Observe]:
    """Put a function into the table, under its own name."""

    def register(observe: Observe) -> Observe:
        CASES.append(Case(observe.__name__, observe, covers, **details))
        return observe

    return register


def stock_parameters() -> dict[str, set[str]]:
    """The parameters that the running torch's two functions know."""
    from torch.utils import cpp_extension

    return {
        name: set(inspect.signature(getattr(cpp_extension, name)).parameters)
        for name in ("load", "load_inline")
    }


def library(result: str | None, name: str) -> str:
    """The path of a library that was loaded. The oldest torch does not return it, warmcc always
    does.
    """
    import torch

    return result or next(path for path in torch.ops.loaded_libraries if name in path)


def facts() -> dict[str, bool]:
    """What a record depends on besides torch's version: whether torch and the machine can build
    CUDA and SYCL.
    """
    import shutil

    import torch
    from torch.utils import cpp_extension

    return {
        "cuda_torch": torch.version.cuda is not None,
        "cuda_toolkit": cpp_extension.CUDA_HOME is not None,
        "sycl_compiler": shutil.which("icpx") is not None,
    }


@dataclass
class World:
    """Where one case runs: ``folder`` is its working directory, ``extensions`` its
    TORCH_EXTENSIONS_DIR.
    """

    folder: Path
    load: Callable[..., Any]
    load_inline: Callable[..., Any]
    known: Mapping[str, set[str]]

    @property
    def extensions(self) -> Path:
        return self.folder / "extensions"

    def write(self, name: str, content: str | bytes) -> str:
        """Write a file below ``folder``; its absolute path."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    def inline(self, name: str, cpp_sources: Any, **arguments: Any) -> Any:
        """``load_inline`` without torch's headers, which would cost 20 s: no_implicit_headers, and
        for a torch that does not know it, an empty torch/extension.h in front of the real one."""
        if "no_implicit_headers" in self.known["load_inline"]:
            return self.load_inline(name, cpp_sources, no_implicit_headers=True, **arguments)
        self.write("shadow/torch/extension.h", _EMPTY_EXTENSION_HEADER)
        before = os.environ.get("CPATH")
        os.environ["CPATH"] = os.pathsep.join(filter(None, [f"{self.folder}/shadow", before]))
        try:
            return self.load_inline(name, cpp_sources, **arguments)
        finally:
            os.environ.pop("CPATH")
            if before is not None:
                os.environ["CPATH"] = before

    def outcome(
        self, call: Callable[..., Any], *arguments: Any, mentions: Sequence[str] = (), **named: Any
    ) -> Any:
        """What a call returns, if plain; else its exception's builtin type, and which of
        ``mentions`` it mentions.
        """
        try:
            result = call(*arguments, **named)
        except Exception as error:
            text = str(error).replace(str(self.folder), "<cwd>")
            seen = {mention: mention in text for mention in mentions}
            return {"raises": builtin_name(error)} | ({"mentions": seen} if seen else {})
        return (
            describe_module(result)
            if isinstance(result, ModuleType)
            else {"returns": self.plain(result)}
        )

    def plain(self, value: Any) -> Any:
        """A JSON value: sequences as lists, texts without the names of temporary folders."""
        if isinstance(value, str):
            return value.replace(str(self.folder), "<cwd>")
        if isinstance(value, Mapping):
            return {str(key): self.plain(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.plain(item) for item in value]
        return (
            value
            if value is None or isinstance(value, (bool, int, float))
            else f"{type(value).__name__}: {value}"
        )

    def files(self, folder: Path) -> list[str]:
        """Files below a build directory, without objects and ninja's own records: those belong to
        the build, which warmcc runs elsewhere."""
        if not folder.is_dir():
            return []
        found = (path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())
        return sorted(
            str(path)
            for path in found
            if path.suffix != ".o" and not path.name.startswith(".ninja")
        )

    def ninja(self, folder: Path) -> list[str]:
        """The lines of the build.ninja in a folder that say what is built from what, and with which
        flags. A newer torch puts ccache in front of the compiler where it finds one: that belongs
        to the machine."""
        import torch

        text = (folder / "build.ninja").read_text()
        for path, mark in (
            (str(self.folder), "<cwd>"),
            (os.path.dirname(torch.__file__), "<torch>"),
            (sysconfig.get_path("include"), "<python>"),
        ):
            text = text.replace(path, mark)
        text = re.sub(r"^(cxx = )s?ccache ", r"\1", text, flags=re.M)
        return [line.strip() for line in text.splitlines() if line.strip()]


def builtin_name(error: BaseException) -> str:
    """Name of the nearest builtin type: warmcc's CompileError is a RuntimeError to whoever catches
    it.
    """
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")


def describe_module(module: ModuleType) -> Observed:
    spec = module.__spec__
    return {
        "module": module.__name__,
        "file": os.path.basename(module.__file__ or ""),
        "doc": module.__doc__,
        "loader": type(module.__loader__).__name__,
        "spec": spec.name if spec else None,
        "registered": module.__name__ in sys.modules,
    }


@contextlib.contextmanager
def captured() -> Iterator[list[str]]:
    """File descriptor 1, where stock lets ninja write. The list holds the text once the block is
    left.
    """
    texts: list[str] = []
    sys.stdout.flush()
    kept = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            yield texts
        finally:
            sys.stdout.flush()
            os.dup2(kept, 1)
            os.close(kept)
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))


def mentions(text: str, *patterns: str) -> dict[str, bool]:
    """Which regular expressions are found in a text."""
    return {pattern: re.search(pattern, text) is not None for pattern in patterns}


def python_module(
    value: str = "PyLong_FromLong(42)", before: str = "", init: str = "TORCH_EXTENSION_NAME"
) -> str:
    """Source of a module in CPython's own interface, which compiles in 0.2 s; its ``answer()``
    returns ``value``.
    """
    return f"""\
#include <Python.h>
{before}
#define AS_TEXT_(x) #x
#define AS_TEXT(x) AS_TEXT_(x)
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
static PyObject* answer(PyObject*, PyObject*) {{ return {value}; }}
static PyMethodDef methods[] = {{{{"answer", answer, METH_NOARGS, "the answer"}}, {{}}}};
static PyModuleDef definition = {{PyModuleDef_HEAD_INIT, \
AS_TEXT(TORCH_EXTENSION_NAME), "a module", -1, methods}};
PyMODINIT_FUNC JOIN(PyInit_, {init})() {{ return PyModule_Create(&definition); }}
"""


def made(world: World, name: str) -> str:
    """A new folder of the case's."""
    (world.folder / name).mkdir(parents=True)
    return str(world.folder / name)


def answer(
    world: World,
    name: str,
    value: str = "PyLong_FromLong(ANSWER)",
    before: str = "",
    **call: object,
) -> object:
    """Build a module and call it: its answer, or the exception's type."""
    return world.outcome(lambda: world.inline(name, python_module(value, before), **call).answer())

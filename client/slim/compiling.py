"""Compile one unit with other includes, and compare what comes of it.

The commands are stock's. Lines keep their numbers for a comparison, and the file its name: both are
in the code of macros such as ``TORCH_CHECK``.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from warmcc import assembly, module_names
from warmcc.client.stock import nvcc
from warmcc.client.stock.processes import run
from warmcc.client.stock.replay import Command

_SECONDS = 900.0
_OF_STD = re.compile(r"_Z(?:T[VTIS])?N?[KVrRO]*(?:S[abstiod]|9__gnu_cxx)")
_UNITS_FILE = re.compile(r'^\s*\.file\s+\d+\s+".*$', re.M)


@dataclass(frozen=True)
class Done:
    """A compiler's end."""

    code: int
    output: str


@dataclass(frozen=True)
class Code:
    """What a unit compiles to: host code as assembler text, PTX by file, and the symbols that the
    object defines for others, takes from others, and has as one of several (``weak``)."""

    assembler: str
    ptx: Mapping[str, str] = field(default_factory=dict)
    defined: frozenset[str] = frozenset()
    undefined: frozenset[str] = frozenset()
    weak: frozenset[str] = frozenset()


class NotCompiled(Exception):
    """A compiler's error; its text is the output."""


class Compiler:
    """Compiles texts in the place of one unit of a plan."""

    def __init__(self, command: Command, environment: Mapping[str, str]) -> None:
        self._command = command
        self._environment = {**environment, "LC_ALL": "C.UTF-8"}
        self._folder = command.folder
        # Units of one plan are looked at side by side
        self._made = command.folder / f"{Path(command.source).name}.made"

    @property
    def is_cuda(self) -> bool:
        return self._command.is_cuda

    @property
    def source(self) -> Path:
        return self._folder / self._command.source

    def parses(self, text: str) -> Done:
        """Have the front end read a text. nvcc has no such mode: it makes PTX, which takes the
        device's half alone."""
        self.source.write_text(text, encoding="utf-8", newline="")
        made = str(self._emptied() / "parsed.ptx")
        mode = ["-ptx", "-o", made] if self.is_cuda else ["-fsyntax-only"]
        flags = self._command.flags
        if self.is_cuda:
            flags = _one_architecture(flags)
        return self._run([self._command.compiler, *flags, *mode, str(self.source)])

    def code(self, text: str) -> Code:
        """What a text compiles to. Raises NotCompiled."""
        self.source.write_text(text, encoding="utf-8", newline="")
        return self._cuda() if self.is_cuda else self._host()

    def _host(self) -> Code:
        made = self._emptied() / "compared.s"
        words = [self._command.compiler, *self._command.flags, "-S", str(self.source)]
        self._checked([*words, "-o", str(made)])
        text = made.read_text(errors="replace")
        target = made.with_suffix(".o")
        self._checked([self._command.compiler, "-c", str(made), "-o", str(target)])
        return Code(text, {}, *self._symbols(target))

    def _cuda(self) -> Code:
        kept = self._emptied()
        target = kept / "compared.o"
        words = [
            self._command.compiler, *self._command.flags, "--keep", "--keep-dir", str(kept), "-c",
            str(self.source), "-o", str(target),
        ]  # fmt: skip
        plan = self._checked([*words, "--dryrun"])
        self._checked(words)
        ptx = {
            path.name: module_names.without(_UNITS_FILE.sub("", path.read_text(errors="replace")))
            for path in sorted(kept.glob("*.ptx"))
        }
        last = _last_step(plan, self._environment)
        assembler = kept / "compared.s"
        last[last.index("-c")] = "-S"
        last[last.index("-o") + 1] = str(assembler)
        self._checked(last)
        text = module_names.without(assembler.read_text(errors="replace"))
        return Code(text, ptx, *self._symbols(target))

    def _emptied(self) -> Path:
        """The folder for what is made."""
        self._made.mkdir(exist_ok=True)
        for old in self._made.iterdir():
            old.unlink()
        return self._made

    def _symbols(self, target: Path) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
        """Strong symbols that an object defines, those that it does not define, and weak ones."""
        rows = [
            row.split()
            for row in module_names.without(self._checked(["nm", "-P", str(target)])).splitlines()
        ]
        kinds = [(row[0], row[1]) for row in rows if len(row) > 1]
        return (
            frozenset(name for name, kind in kinds if kind in "TDBR"),
            frozenset(name for name, kind in kinds if kind == "U"),
            frozenset(name for name, kind in kinds if kind in "WVu"),
        )

    def _checked(self, words: Sequence[str]) -> str:
        done = self._run(words)
        if done.code != 0:
            raise NotCompiled(done.output)
        return done.output

    def _run(self, words: Sequence[str]) -> Done:
        try:
            return Done(*run(words, self._folder, self._environment, _SECONDS))
        except subprocess.TimeoutExpired:
            return Done(1, f"error: no end within {_SECONDS:g} s")


def _one_architecture(flags: Sequence[str]) -> list[str]:
    """nvcc makes PTX for one architecture at a time: the first.

    >>> _one_architecture(["-gencode=arch=compute_80", "-gencode=arch=compute_90", "-O3"])
    ['-gencode=arch=compute_80', '-O3']
    """
    found: list[str] = []
    seen, rest = False, iter(flags)
    for word in rest:
        pair = [word, next(rest, "")] if word in ("-gencode", "--generate-code") else [word]
        if word.startswith(("-gencode", "--generate-code")):
            if seen:
                continue
            seen = True
        found += pair
    return found


def _last_step(plan: str, environment: Mapping[str, str]) -> list[str]:
    """The words of the host compiler's last call in ``nvcc --dryrun``. Raises NotCompiled."""
    for words in reversed(nvcc.steps(plan, environment)):
        if "-c" in words and "-o" in words and any(one.endswith(".cudafe1.cpp") for one in words):
            return words
    raise NotCompiled("error: nvcc's plan has no step for the host compiler")


def differing(before: Code, after: Code, source: str) -> list[str]:
    """What is not the same: functions of the source, PTX, and symbols.

    >>> differing(Code("", {"a.ptx": "x"}), Code("", {"a.ptx": "y"}), "")
    ['a.ptx']
    """
    functions = {
        *assembly.differing(after.assembler, before.assembler, source),
        *assembly.differing(before.assembler, after.assembler, source),
    }
    names = before.ptx.keys() | after.ptx.keys()
    ptx = [name for name in sorted(names) if before.ptx.get(name) != after.ptx.get(name)]
    # A body that was there must not become a call of something that no library has; and an
    # instance of torch's or pybind11's templates that was not there is of another one than before.
    # (Whether one of std's stands in the object also depends on what else is there.)
    weak = {name for name in after.weak - before.weak if not _OF_STD.match(name)}
    new = (after.undefined - before.undefined) | weak
    found = [*sorted(functions), *ptx, *sorted(before.defined ^ after.defined), *sorted(new)]
    return list(dict.fromkeys(found))


def differing_halves(
    before: Code, halves: tuple[Code, Code], source: str, *, one_compiler: bool = True
) -> list[str]:
    """What is not the same in either of two objects that take the place of one. Without
    ``one_compiler`` the second comes of g++, where the one came of nvcc: the same instance of a
    template has other names there.

    >>> whole = Code("", {"a.ptx": "x"}, frozenset("fg"), frozenset("m"))
    >>> halves = Code("", {"a.ptx": "x"}, frozenset("f")), Code("", {}, frozenset("g"))
    >>> differing_halves(whole, halves, ""), differing_halves(whole, halves[:1] * 2, "")
    ([], ['f', 'g'])
    """
    missing = [set(assembly.differing(before.assembler, one.assembler, source)) for one in halves]
    added = {
        name for one in halves for name in assembly.users(one.assembler, source)
    } - assembly.users(before.assembler, source).keys()
    ptx = {name: text for one in halves for name, text in one.ptx.items()}
    defined, undefined, weak = (
        frozenset().union(*(getattr(one, kind) for one in halves))
        for kind in ("defined", "undefined", "weak")
    )
    instances = weak if one_compiler else halves[0].weak
    others = {name for name in instances - before.weak if not _OF_STD.match(name)}
    new = undefined - before.undefined - defined - weak
    return sorted({
        *(missing[0] & missing[1]), *added, *(before.defined ^ defined), *others, *new,
        *(halves[0].defined & halves[1].defined),
        *(name for name in before.ptx.keys() | ptx.keys() if before.ptx.get(name) != ptx.get(name)),
    })  # fmt: skip


def readable(names: Sequence[str]) -> list[str]:
    """Symbols as C++ has them, where binutils are there."""
    try:
        done = subprocess.run(["c++filt", *names], capture_output=True, text=True)
    except OSError:
        return [*names]
    lines = done.stdout.splitlines()
    return lines if len(lines) == len(names) else [*names]

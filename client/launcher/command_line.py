"""What a compiler's command line asks for, where that is one source to one object.

A word that is not understood here is left to the daemon, and one that the daemon does not
understand to the compiler.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_CPP, _CUDA = (".cpp", ".cc", ".cxx", ".C", ".c++"), (".cu",)
_LANGUAGES = {"c++": _CPP, "cu": _CUDA}
# What makes something else than an object, or tells of something: the compiler does that
_OTHERWISE = re.compile(
    r"-E|-S|-M|-MM|-MG|-MJ.*|-v|-###|-V|--?help.*|--?version|-h|-print-.*|--print-.*|-dump.*|-dc"
    r"|-dw|-fsyntax-only|--?(?:dryrun|keep|run|lib|ptx|cubin|fatbin|preprocess|device-.*|link"
    r"|list-gpu-.*|save-temps|time|run-args|cuda|optix-ir|ltoir|rdc|relocatable-device-code)(?:=.*)?"
)
_GCC_VALUED = {
    "-I", "-D", "-U", "-L", "-include", "-imacros", "-isystem", "-iquote", "-idirafter", "-iprefix",
    "-iwithprefix", "-iwithprefixbefore", "-isysroot", "-imultilib", "-Xlinker", "-Xassembler",
    "-Xpreprocessor", "-T", "-u", "-z", "-l", "-A", "--param", "-aux-info", "-B", "-wrapper",
    "-specs", "-arch", "-target", "-dumpbase", "-dumpdir", "-dumpbase-ext", "-e", "-G",
}  # fmt: skip
_NVCC_VALUED = {
    "-I", "--include-path", "-isystem", "--system-include", "-D", "--define-macro", "-U",
    "--undefine-macro", "-L", "--library-path", "-l", "--library", "-include", "--pre-include",
    "-gencode", "--generate-code", "-arch", "--gpu-architecture", "-code", "--gpu-code", "-std",
    "--std", "-O", "--optimize", "-maxrregcount", "--maxrregcount", "-t", "--threads",
    "-default-stream", "--default-stream", "-Xcompiler", "--compiler-options", "-Xptxas",
    "--ptxas-options", "-Xcudafe", "--cudafe-options", "-Xfatbin", "--fatbin-options", "-Xlinker",
    "--linker-options", "-Xnvlink", "--nvlink-options", "-Xarchive", "--archive-options", "-m",
    "--machine", "-diag-suppress", "--diag-suppress", "-diag-error", "--diag-error", "-diag-warn",
    "--diag-warn", "-ccbin", "--compiler-bindir", "-split-compile", "--split-compile",
}  # fmt: skip
# nvcc does not know the first; with the others, the working directory is in the code that it makes
_NVCC_ALONE = ("-MQ", "-G", "--device-debug")
_NAMED = {
    "--dependency-output": "-MF", "--output-file": "-o", "--compile": "-c", "--x": "-x",
    "--generate-dependencies-with-compile": "-MD",
    "--generate-nonsystem-dependencies-with-compile": "-MMD",
}  # fmt: skip
_JOINED = re.compile(r"(-o|-MF|-MT|-MQ|-x)(.+)")
_NVCC_JOINED = re.compile(r"(-o|-MF|-MT|-x)=(.+)")


class NotOurs(Exception):
    """The compiler has to do it."""


@dataclass
class Depfile:
    """The rule that a compiler writes beside its object. ``system``: with headers of system
    folders; ``targets``: as ``-MT`` and ``-MQ`` give them, already quoted."""

    system: bool
    path: str = ""
    targets: list[str] = field(default_factory=list)
    phony: bool = False


@dataclass
class Command:
    """``source`` and ``object`` as they are written; ``folders`` are those of its headers, and of
    them ``system`` the ones that come as the system's. ``host``: nvcc's ``-ccbin``."""

    source: str
    object: str
    flags: list[str]
    depfile: Depfile | None
    is_cuda: bool
    folders: list[str] = field(default_factory=list)
    system: list[str] = field(default_factory=list)
    host: str = ""


def read(words: Sequence[str], *, is_nvcc: bool) -> Command:
    """What the words behind a compiler's name ask for. Raises NotOurs."""
    reading = _Reading(is_nvcc)
    rest = iter(_expanded(words, is_nvcc=is_nvcc))
    for word in rest:
        reading.take(word, rest)
    return reading.command()


class _Reading:
    def __init__(self, is_nvcc: bool) -> None:
        self._is_nvcc = is_nvcc
        self._valued = _NVCC_VALUED if is_nvcc else _GCC_VALUED
        self._alone = _NVCC_ALONE if is_nvcc else ()
        self._compiles = 0
        self._sources: list[str] = []
        self._objects: list[str] = []
        self._languages: list[str] = []
        self._flags: list[str] = []
        self._deps: dict[str, list[str]] = {}
        self._found = Command("", "", [], None, is_nvcc)

    def take(self, word: str, rest: Iterator[str]) -> None:
        if self._is_nvcc:
            name, equals, value = word.partition("=")
            word = _NAMED.get(name, name) + equals + value
        if joined := (_NVCC_JOINED if self._is_nvcc else _JOINED).fullmatch(word):
            word, rest = joined[1], iter([joined[2]])
        if word == "-c":
            self._compiles += 1
        elif word == "-x" and self._sources:
            raise NotOurs("a language for what comes later")
        elif word in ("-o", "-x"):
            (self._objects if word == "-o" else self._languages).append(_next(rest))
        elif word in ("-MD", "-MMD", "-MP"):
            self._deps.setdefault(word, [])
        elif word in ("-MF", "-MT", "-MQ") and word not in self._alone:
            self._deps.setdefault(word, []).append(_next(rest))
        elif word == "-forward-unknown-to-host-compiler" and self._is_nvcc:
            pass  # the daemon knows each word that is left, or the compiler gets all of them
        elif _OTHERWISE.fullmatch(word) or word == "-" or word in self._alone:
            raise NotOurs(word)
        elif not word.startswith("-"):
            self._sources.append(word)
        else:
            self._flag(word, rest)

    def _flag(self, word: str, rest: Iterator[str]) -> None:
        value = _next(rest) if word in self._valued else None
        name, equals, joined = word.partition("=")
        if self._is_nvcc and name in ("-ccbin", "--compiler-bindir"):
            self._found.host = joined if equals else value or ""
            return
        if self._is_nvcc and name in ("-gencode", "--generate-code"):
            word, value = f"-gencode={joined if equals else value}", None
        self._note_folder(word, value)
        self._flags += [word] if value is None else [word, value]

    def _note_folder(self, word: str, value: str | None) -> None:
        for option in ("-isystem", "--system-include", "-I", "--include-path"):
            if not word.startswith(option):
                continue
            folder = word[len(option) :].removeprefix("=") if value is None else value
            self._found.folders.append(folder)
            if "system" in option:
                self._found.system.append(folder)
            return

    def command(self) -> Command:
        found = self._found
        if self._compiles != 1 or len(self._sources) != 1 or len(self._objects) > 1:
            raise NotOurs("not one source to one object")
        (found.source,) = self._sources
        suffixes = _CUDA if self._is_nvcc else _CPP
        if not found.source.endswith(suffixes):
            raise NotOurs("another language")
        if any(_LANGUAGES.get(language) != suffixes for language in self._languages):
            raise NotOurs("another language")
        stem = os.path.splitext(os.path.basename(found.source))[0]
        found.object = self._objects[0] if self._objects else f"{stem}.o"
        found.flags, found.depfile = self._flags, self._depfile(found.object)
        files = [found.source, found.object, *([found.depfile.path] if found.depfile else [])]
        if len(set(map(os.path.realpath, files))) < len(files):
            raise NotOurs("one file for two purposes")  # which g++ refuses for a source
        return found

    def _depfile(self, made: str) -> Depfile | None:
        if not self._deps.keys() & {"-MD", "-MMD"}:
            if self._deps:
                raise NotOurs("dependencies of a kind that is not known")
            return None
        path = self._deps.get("-MF", [os.path.splitext(made)[0] + ".d"])[-1]
        targets = [*self._deps.get("-MT", []), *map(quoted, self._deps.get("-MQ", []))]
        if "-MT" in self._deps and "-MQ" in self._deps:
            raise NotOurs("-MT and -MQ")  # their order is not kept
        if self._is_nvcc and any(len(values) > 1 for values in self._deps.values()):
            raise NotOurs("the same more than once")  # of which nvcc warns
        system = "-MMD" not in self._deps
        return Depfile(system, path, targets or [quoted(made)], "-MP" in self._deps)


def quoted(name: str) -> str:
    """A path as it stands in a rule of a Makefile."""
    return re.sub(r"([ \t#])", r"\\\1", name).replace("$", "$$")


def _next(rest: Iterator[str]) -> str:
    try:
        return next(rest)
    except StopIteration:
        raise NotOurs("a flag without its value") from None


def _expanded(words: Sequence[str], *, is_nvcc: bool, depth: int = 0) -> list[str]:
    """The words with those of response files in their places. Raises NotOurs."""
    found: list[str] = []
    rest = iter(words)
    for word in rest:
        files: list[str] = []
        if is_nvcc and word in ("--options-file", "-optf"):
            files = _next(rest).split(",")
        elif is_nvcc and word.startswith(("--options-file=", "-optf=")):
            files = word.partition("=")[2].split(",")
        elif not is_nvcc and word.startswith("@") and len(word) > 1:
            files = [word[1:]]
        if not files:
            found.append(word)
        for file in files:
            if depth > 10:
                raise NotOurs("response files within response files")
            try:
                with open(file, encoding="utf-8") as opened:
                    more = shlex.split(opened.read())
            except (OSError, ValueError):
                raise NotOurs("a response file that cannot be read") from None
            found += _expanded(more, is_nvcc=is_nvcc, depth=depth + 1)
    return found

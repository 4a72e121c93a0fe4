"""What nvcc would run for one unit, as steps that can run side by side.

nvcc runs its programs one after the other, although the host's half of a unit (``cudafe++``) and
each device's (``cicc``, ``ptxas``) read nothing of each other's. Its own list (``nvcc --dryrun``)
says what they are. Two things are changed in it: the name of the module, which nvcc has one half
make up for the other, is written beforehand; and the preprocessors say what they read, as nvcc does
not show how it finds that out.

Unlike ``dryrun.py``, which plans for any unit with the same flags, this is the list for one unit,
in its own names.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from warmcc import digest
from warmcc.daemon.cuda.dryrun import UnknownPlan

_ASSIGNMENT = re.compile(r"(\w+)=(.*)", re.S)
_IGNORED = re.compile(r"rm \S+|-- Filter Dependencies -- > .+")
_HOSTS = re.compile(r"(?:[\w-]+-)?g(?:cc|\+\+)(?:-[\d.]+)?")
_EXPORTED = ("PATH", "LD_LIBRARY_PATH")
_PACKED = "--embedded-fatbin="
HOST = "the host's compiler"
STUB = "--stub_file_name"  # cicc writes it, and cudafe++ only names it
_GENERATED = ("--gen_c_file_name", "--gen_device_file_name", "-o")
_ONLY_NAMED = (
    "--include_file_name",
    "--stub_file_name",
    "--module_id_file_name",
    "--orig_src_file_name",
)

Half = Literal["host", "device", "both"]


@dataclass(frozen=True)
class Step:
    """One program's call: its name in the timeline, what it runs, the places of the steps that it
    waits for, and to which half of the unit it belongs."""

    name: str
    words: list[str]
    after: frozenset[int]
    half: Half

    @property
    def makes_ptx(self) -> bool:
        """Whether it is on the way from the unit to a device's PTX."""
        return self.half == "device" and self.name in ("preprocessor", "cicc")


@dataclass(frozen=True)
class Steps:
    """In nvcc's order. ``environment`` is what nvcc adds for them, ``told`` what nvcc itself had to
    say, ``module_id`` the file that names the module, ``read`` the files in which the preprocessors
    list what they read."""

    steps: list[Step]
    environment: dict[str, str]
    told: str
    module_id: Path
    read: list[Path]

    def places(self, name: str) -> list[int]:
        """Where the steps of this name are."""
        return [place for place, step in enumerate(self.steps) if step.name == name]

    @property
    def host_preprocessor(self) -> tuple[int, Path]:
        """Its place among the steps, and the file in which it lists what it read."""
        found = [(one.name, one.half) for one in self.steps].index(("preprocessor", "host"))
        return found, Path(self.steps[found].words[-1])


def parse(dryrun: str, folder: Path, made: str) -> Steps:
    """Read the list for the object ``made`` with all else below ``folder``. Raises UnknownPlan."""
    environment: dict[str, str] = {}
    told, calls = "", list[list[str]]()
    for line in dryrun.splitlines(keepends=True):
        if not line.startswith("#$ "):
            told += line
            continue
        line = line[3:].strip()
        if assigned := _ASSIGNMENT.fullmatch(line):
            environment[assigned[1]] = assigned[2].strip()
        elif not _IGNORED.fullmatch(line):
            calls.append(_words(line, environment))
    steps: list[Step] = []
    for words in calls:
        steps.append(_step(words, calls[: len(steps)], folder, made))
    names = [step.name for step in steps]
    if names.count("cudafe++") != 1 or names.count("fatbinary") != 1 or names[-1] != HOST:
        raise UnknownPlan(f"nvcc's steps are {', '.join(names)}")
    if not any(step.half == "device" for step in steps):
        raise UnknownPlan("no device architecture in nvcc's plan")
    ids = {_value(words, "--module_id_file_name") for words in calls} - {None}
    if len(ids) != 1 or not _inside(module_id := str(ids.pop()), folder):
        raise UnknownPlan("nvcc's steps do not name one file for the module's name")
    read = [
        Path(word)
        for step in steps
        for word in step.words
        if word.startswith(f"{folder}/") and word.endswith(".read")
    ]
    exported = {name: value for name, value in environment.items() if name in _EXPORTED}
    return Steps(steps, exported, told, Path(module_id), read)


def module_name(source: str, identity: str) -> str:
    """A name as nvcc makes one, the same for each version of one unit."""
    found = digest.of_value([identity, source])
    name = re.sub(r"\W", "_", os.path.basename(source))
    return f"_{found[:8]}_{len(name)}_{name}_{found[8:16]}"


def is_gcc(step: Step) -> bool:
    """Whether the host's compiler is GCC by its name."""
    return _HOSTS.fullmatch(os.path.basename(step.words[0])) is not None


def _words(line: str, environment: dict[str, str]) -> list[str]:
    for name in sorted(environment, key=len, reverse=True):
        line = line.replace(f"${name}", environment[name])
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UnknownPlan(f"{error}: {line[:200]}") from error
    if not words or any("$" in word or "`" in word for word in words):
        raise UnknownPlan(f"a step that only a shell understands: {line[:200]}")
    return words


def _step(words: list[str], before: list[list[str]], folder: Path, made: str) -> Step:
    program = os.path.basename(words[0])
    written = _outputs(words)
    if written != [made] and not all(_inside(path, folder) for path in written):
        raise UnknownPlan(f"{program} writes somewhere else")
    read = _inputs(words) - set(written)
    after = frozenset(place for place, one in enumerate(before) if read.intersection(_outputs(one)))
    if program == "cudafe++":
        kept = [word for word in words if word != "--gen_module_id_file"]
        return Step(program, kept, after, "host")
    if program in ("cicc", "ptxas"):
        return Step(
            program, [word for word in words if word != "--gen_module_id_file"], after, "device"
        )
    if program == "fatbinary":
        return Step(program, words, after, "device")
    if "-E" in words and "-x" in words and words[-2] == "-o":
        half: Half = (
            "device" if any(word.startswith("-D__CUDA_ARCH__=") for word in words) else "host"
        )
        return Step("preprocessor", [*words, "-MD", "-MF", f"{words[-1]}.read"], after, half)
    if "-c" in words and "-x" in words and written == [made]:
        return Step(HOST, words, frozenset(range(len(before))), "both")
    raise UnknownPlan(f"an unknown program {program}")


def outputs_by_option(words: list[str]) -> dict[str, str]:
    """The files that a step writes, by the options that name them."""
    found = {word: words[at + 1] for at, word in enumerate(words[:-1]) if word in _GENERATED}
    stub = _value(words, STUB) if os.path.basename(words[0]) == "cicc" else None
    return found if stub is None else {**found, STUB: stub}


def included(words: list[str]) -> str | None:
    """The file that the stub which cicc writes includes."""
    return _value(words, "--include_file_name")


def _outputs(words: list[str]) -> list[str]:
    packed = [word[len(_PACKED) :] for word in words if word.startswith(_PACKED)]
    return [*outputs_by_option(words).values(), *packed]


def _inputs(words: list[str]) -> set[str]:
    """All files that it may read, but for those that it only names."""
    named = {place + 1 for place, word in enumerate(words) if word in _ONLY_NAMED}
    return {word.rsplit("file=", 1)[-1] for place, word in enumerate(words) if place not in named}


def _value(words: list[str], option: str) -> str | None:
    return words[words.index(option) + 1] if option in words[:-1] else None


def _inside(path: str, folder: Path) -> bool:
    return path.startswith(f"{folder}/") and "/.." not in path

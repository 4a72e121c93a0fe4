"""nvcc's plan for a unit, read from ``nvcc --dryrun``: which programs it would run, with which
words.

nvcc is a driver. It has the unit preprocessed once for the host and once for each device
architecture, the host's text taken apart by ``cudafe++``, each device's compiled to PTX by ``cicc``
and to machine code by ``ptxas``, all of that packed by ``fatbinary``, and cudafe++'s text compiled
with the package inside. A plan that has anything else in it is not understood: its unit goes to
nvcc itself.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection
from dataclasses import dataclass, replace

from warmcc.daemon.pch import flag_reduction

UNIT = "cuda.cu"  # the name of every unit in its plan
MODULE_ID = "cuda.module_id"

_TEMPORARY = re.compile(r"(?:[^\s\"=,]*/)?tmpxft_[0-9a-f]+_[0-9a-f]+-\d+_")
_FOLDER = ("-isystem", "-iquote", "-idirafter", "-I")
_ATTACHED = re.compile(r"^-(?:isystem|iquote|idirafter|I)=?(.+)")
_OVERRULING = re.compile(r"-O(?=\w?$|fast$)|-std=(?=\w)")
_IGNORED = re.compile(r"rm \S+|-- Filter Dependencies -- > \S+")
_FEATURES = ("-D__CUDA_ARCH_FEAT_", "-D__CUDA_ARCH_SPECIFIC__=", "-D__CUDA_ARCH_FAMILY_SPECIFIC__=")
_RECORDS = re.compile(r"-g(gdb)?3$")
_IDENTIFIER = "--ident="


class UnknownPlan(Exception):
    """The plan has something that the daemon does not know; the text names it."""


@dataclass(frozen=True)
class NvccCommand:
    """A step that ends in ``INPUT -o OUTPUT``: its program with all options, and the two files.
    ``output`` is empty where a step only checks its input, which is then its last word."""

    options: tuple[str, ...]
    input: str
    output: str

    @classmethod
    def of(cls, words: list[str]) -> NvccCommand:
        if len(words) < 4 or words[-2] != "-o":
            raise ValueError("a step that does not end in its two files")
        *options, read = _input_last(words[:-2])
        return cls(tuple(options), read, words[-1])

    @classmethod
    def of_ptxas(cls, words: list[str]) -> NvccCommand:
        """PTX that stays PTX is only checked (``-gencode=arch=compute_90,code=compute_90``)."""
        if "-o" in words or not any(word.startswith("-arch=compute_") for word in words):
            return cls.of(words)
        return cls(tuple(words[:-1]), words[-1], "")

    @property
    def words(self) -> list[str]:
        return [*self.options, self.input, *(["-o", self.output] if self.output else [])]


@dataclass(frozen=True)
class Cudafe:
    """``text`` is the file that it writes of the unit, ``stub`` the one that this includes."""

    words: list[str]
    input: str
    text: str
    stub: str

    @classmethod
    def of(cls, words: list[str]) -> Cudafe:
        kept = _input_last([word for word in words if word != "--gen_module_id_file"])
        return cls(
            kept, kept[-1], _option(kept, "--gen_c_file_name"), _option(kept, "--stub_file_name")
        )


@dataclass(frozen=True)
class Fatbinary:
    """``images`` are the files that it packs, ``packages`` those into which it writes them."""

    words: list[str]
    images: tuple[str, ...]
    packages: tuple[str, ...]

    @classmethod
    def of(cls, words: list[str]) -> Fatbinary:
        images = (word.rsplit("file=", 1)[-1] for word in words if word.startswith("--image3="))
        packages = (
            word.partition("=")[2] for word in words if word.startswith("--embedded-fatbin=")
        )
        return cls(words, tuple(images), tuple(packages))

    def naming(self, source: str) -> list[str]:
        """Its words for a unit of that name, which they have with ``-lineinfo``."""
        own = f"{_IDENTIFIER}{source}"
        return [own if word.startswith(_IDENTIFIER) else word for word in self.words]


@dataclass(frozen=True)
class Device:
    """The way of one virtual architecture: its name (90, or 90a), and its steps. ``ptxas`` has one
    per real architecture.
    """

    architecture: str
    preprocess: NvccCommand
    cicc: NvccCommand
    ptxas: tuple[NvccCommand, ...]


@dataclass(frozen=True)
class NvccPlan:
    """Every step. All files are named relative to the folder in which they run."""

    preprocess: NvccCommand
    cudafe: Cudafe
    devices: tuple[Device, ...]
    fatbinary: Fatbinary
    host: NvccCommand

    def for_headers(self, folders: Collection[str], places: Collection[str]) -> NvccPlan:
        """The same without words that say nothing of torch's headers: the caller's ``folders``,
        warnings, what later words overrule, and other names for files from elsewhere than
        ``places`` and the folders that are left."""
        found = [
            NvccCommand(_of_headers(step.options, folders, places), step.input, step.output)
            for step in (self.preprocess, self.host)
        ]
        return replace(self, preprocess=found[0], host=found[1])


def _of_headers(
    options: tuple[str, ...], folders: Collection[str], places: Collection[str]
) -> tuple[str, ...]:
    r"""The words of a call of g++ that matter to headers.

    >>> _of_headers(("g++", "-O2", "-I", "/a", "-I/b", "-Wall", "-O3", "-DX"), {"/a", "/b"}, ())
    ('g++', '-O3', '-DX')
    >>> maps = ("-ffile-prefix-map=/a/./=", "-ffile-prefix-map=/b=", "-fmacro-prefix-map=/c/d=")
    >>> _of_headers(("g++", "-isystem/a/./b", "-I", "/c", *maps), ["/c"], ())
    ('g++', '-isystem/a/./b', '-ffile-prefix-map=/a/./=')
    >>> _of_headers(("g++", *maps), (), ["/c"])
    ('g++', '-fmacro-prefix-map=/c/d=')
    """
    found: list[str] = []
    places = list(places)
    rest = iter(options)
    for word in rest:
        pair = [word, next(rest, "")] if word in _FOLDER else [word]
        named = pair[1] if len(pair) == 2 else word.removeprefix("-I") if word[:2] == "-I" else ""
        if named in folders or flag_reduction.is_warning(word):
            continue
        places += [pair[1]] if len(pair) == 2 else _ATTACHED.findall(word)
        if overrules := _OVERRULING.match(word):
            found = [one for one in found if not one.startswith(overrules[0])]
        found += pair
    return tuple(word for word in found if not flag_reduction.renames_none(word, places))


def module_id(digest: str) -> str:
    """The name of a unit's own part of all anonymous namespaces, as nvcc would write it into
    MODULE_ID.
    """
    return f"_{digest[:8]}_7_cuda_cu_{digest[8:16]}"


NO_MODULE_ID = module_id("0" * 16)


def command(nvcc: str, flags: list[str]) -> list[str]:
    """The command that shows the plan."""
    return [nvcc, "--dryrun", *flags, "-c", UNIT, "-o", "cuda.o"]


def parse(dryrun: str, variables: dict[str, str]) -> NvccPlan:
    """Read what ``nvcc --dryrun`` printed. Raises UnknownPlan."""
    reading = _Reading()
    for line in dryrun.split("\n"):
        if not line.startswith("#$ "):
            if line.strip():
                raise UnknownPlan(line.strip()[:200])
            continue
        line = line[3:].strip()
        if re.match(r"\w+=", line) or _IGNORED.fullmatch(line):
            continue
        for name, value in variables.items():
            line = line.replace(f"${name}", value)
        try:
            reading.step(shlex.split(_TEMPORARY.sub("", line)))
        except (ValueError, IndexError) as error:
            raise UnknownPlan(f"{error}: {line[:200]}") from error
    plan = reading.plan()
    _check(plan)
    return plan


class _Reading:
    """The steps that were read so far, by their names; those of devices in the order in which nvcc
    names them.
    """

    def __init__(self) -> None:
        self._once: dict[str, list[str]] = {}
        self._devices: list[tuple[dict[str, list[str]], list[NvccCommand]]] = []

    def step(self, words: list[str]) -> None:
        """Raises ValueError, IndexError."""
        program = words[0].rsplit("/", 1)[-1]
        if program == "gcc" or "-x" in words:
            if "-E" in words and any(word.startswith("-D__CUDA_ARCH__=") for word in words):
                self._devices.append(({"gcc -E": words}, []))
            elif "-E" in words:
                _put(self._once, "gcc -E", words)
            elif (
                "-c" in words
                and words[-2:] == ["-o", "cuda.o"]
                and words[-3].endswith(".cudafe1.cpp")
            ):
                _put(self._once, "gcc -c", words)
            else:
                raise ValueError("an unknown call of the host compiler")
        elif program in ("cudafe++", "fatbinary"):
            _put(self._once, program, words)
        elif program == "cicc":
            _put(self._devices[-1][0], program, words)
        elif program == "ptxas":
            self._devices[-1][1].append(NvccCommand.of_ptxas(words))
        else:
            raise ValueError(f"an unknown program {program}")

    def plan(self) -> NvccPlan:
        """Raises UnknownPlan when a step is missing, or cannot be taken apart."""
        if not self._devices:
            raise UnknownPlan("no device architecture in nvcc's plan")
        try:
            devices = (
                Device(
                    _option(steps["cicc"], "-arch").removeprefix("compute_"),
                    NvccCommand.of(steps["gcc -E"]),
                    NvccCommand.of(steps["cicc"]),
                    tuple(ptxas),
                )
                for steps, ptxas in self._devices
            )
            return NvccPlan(
                NvccCommand.of(self._once["gcc -E"]), Cudafe.of(self._once["cudafe++"]),
                tuple(devices),
                Fatbinary.of(self._once["fatbinary"]),
                NvccCommand.of(_without_features(self._once["gcc -c"])),
            )  # fmt: skip
        except KeyError as missing:
            raise UnknownPlan(f"no {missing.args[0]} in nvcc's plan") from None
        except ValueError as error:
            raise UnknownPlan(f"{error} in nvcc's plan") from error


def _put(steps: dict[str, list[str]], name: str, words: list[str]) -> None:
    if name in steps:
        raise ValueError("duplicate step in nvcc's plan")
    steps[name] = words


def _input_last(words: list[str]) -> list[str]:
    """The words of a front end; CUDA 13.5 has an option behind what it reads.

    >>> _input_last(["cicc", "-m64", "--tused", "a.ii", "--simt-only"])
    ['cicc', '-m64', '--tused', '--simt-only', 'a.ii']
    """
    end = len(words)
    while end > 2 and words[end - 1].startswith("--"):
        end -= 1
    return [*words[: end - 1], *words[end:], words[end - 1]]


def _without_features(words: list[str]) -> list[str]:
    """The host's command without macros of a device's features (``sm_90a``). What cudafe++ wrote
    has no condition left that could ask for them, and g++ would refuse a precompiled header that
    was made for the device without features. What ``-g3`` records of macros stays.

    >>> _without_features(["gcc", "-D__CUDA_ARCH__=900", "-D__CUDA_ARCH_SPECIFIC__=900", "-O3"])
    ['gcc', '-D__CUDA_ARCH__=900', '-O3']
    >>> len(_without_features(["gcc", "-D__CUDA_ARCH_SPECIFIC__=900", "-g3"]))
    3
    """
    if any(_RECORDS.match(word) for word in words):
        return words
    return [word for word in words if not word.startswith(_FEATURES)]


def _check(plan: NvccPlan) -> None:
    """Whether every step reads what the one before it wrote."""
    fronts = [
        (plan.cudafe.input, plan.preprocess),
        *((one.cicc.input, one.preprocess) for one in plan.devices),
    ]
    if any(read != before.output for read, before in fronts):
        raise UnknownPlan("a front end reads something else than the preprocessed unit")
    names = [device.architecture for device in plan.devices]
    if len(set(names)) != len(names):  # their fork servers would be each other's
        raise UnknownPlan("two devices of one architecture")
    written = {device.cicc.output for device in plan.devices}
    for device in plan.devices:
        for step in device.ptxas:
            if step.input not in written:
                raise UnknownPlan("ptxas reads something else than what cicc wrote")
            written.add(step.output)
    if not plan.fatbinary.images or not written.issuperset(plan.fatbinary.images):
        raise UnknownPlan("fatbinary packs something else than what cicc and ptxas wrote")
    if plan.host.input != plan.cudafe.text:
        raise UnknownPlan("the host compiler reads something else than what cudafe++ wrote")


def _option(words: list[str], name: str) -> str:
    """The value of an option. Raises ValueError when it is not there."""
    try:
        return words[words.index(name) + 1]
    except (ValueError, IndexError) as error:
        raise ValueError(f"{words[0]} without {name}") from error

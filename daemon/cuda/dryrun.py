"""nvcc's plan for a unit, read from ``nvcc --dryrun``: which programs it would run, with which words.

nvcc is a driver. It has the unit preprocessed once for the host and once for each device architecture, the host's text
taken apart by ``cudafe++``, each device's compiled to PTX by ``cicc`` and to machine code by ``ptxas``, all of that
packed by ``fatbinary``, and cudafe++'s text compiled with the package inside. A plan that has anything else in it is
not understood: its unit goes to nvcc itself.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field

UNIT = "cuda.cu"  # the name of every unit in its plan
MODULE_ID = "cuda.module_id"

_TEMPORARY = re.compile(r"(?:[^\s\"=,]*/)?tmpxft_[0-9a-f]+_[0-9a-f]+-\d+_")
_IGNORED = re.compile(r"rm \S+|-- Filter Dependencies -- > \S+")


class NotUnderstood(Exception):
    """The plan has something that the daemon does not know; the text names it."""


@dataclass
class Device:
    """The way of one virtual architecture: its name, and the words of its steps. ``ptxas`` has one per real one."""

    architecture: str
    preprocess: list[str]
    cicc: list[str] = field(default_factory=list)
    ptxas: list[list[str]] = field(default_factory=list)


@dataclass
class Plan:
    """The words of each step. All files are named relative to the folder in which they run."""

    preprocess: list[str] = field(default_factory=list)
    cudafe: list[str] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)
    fatbinary: list[str] = field(default_factory=list)
    host: list[str] = field(default_factory=list)


def module_id(digest: str) -> str:
    """The name of a unit's own part of all anonymous namespaces, as nvcc would write it into MODULE_ID."""
    return f"_{digest[:8]}_7_cuda_cu_{digest[8:16]}"


NO_MODULE_ID = module_id("0" * 16)

# In what nvcc writes, a module's name ends in a second digest, or in the name of something that the module defines. How
# long it is stands in front of it.
_OWN_NAME = re.compile(r"_[0-9a-f]{8}_\d+_\w+?_cu_[0-9a-f]{8}")
_ANY_NAME = re.compile(r"_[0-9a-f]{8}_\d+_\w+?_cu_\w+")
_MANGLED_NAME = re.compile(r"(\d+)(_(?:INTERNAL|GLOBAL__N_))(?=(_[0-9a-f]{8}_\d+_\w+))")
_LENGTH = re.compile(r"\d+(_(?:INTERNAL|GLOBAL__N_))")


def without_module_names(text: str) -> str:
    """PTX, or a listing of symbols or machine code, without what differs from one module to the other.

    >>> without_module_names("_ZN36_INTERNAL_d78ca6d4_7_cuda_cu_weights3std1xE of d78ca6d4_7_cuda_cu_weights")
    '_ZN_INTERNAL_3std1xE of '
    >>> without_module_names("_ZN37_INTERNAL_0e5b9dd5_7_cuda_cu_b2f1a07c3std1xE of 0e5b9dd5_7_cuda_cu_b2f1a07c")
    '_ZN_INTERNAL_3std1xE of '
    """
    names = {found[1:] for found in _mangled_names(text)}
    names.update(name[1:] for name in _OWN_NAME.findall(text))
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, "")
    return _LENGTH.sub(r"\1", text)


def _mangled_names(text: str) -> set[str]:
    """Modules' names in mangled ones. The digits of a length may follow upon a name that ends in one."""
    found = set()
    for digits, start, rest in set(_MANGLED_NAME.findall(text)):
        sizes = (int(digits[index:]) - len(start) for index in reversed(range(len(digits))))
        named = (rest[:size] for size in sizes if 0 < size <= len(rest))
        found.update([next((name for name in named if _ANY_NAME.fullmatch(name)), "")])
    return found - {""}


def command(nvcc: str, flags: list[str]) -> list[str]:
    """The command that shows the plan."""
    return [nvcc, "--dryrun", *flags, "-c", UNIT, "-o", "cuda.o"]


def parse(dryrun: str, variables: dict[str, str]) -> Plan:
    """Read what ``nvcc --dryrun`` printed. Raises NotUnderstood."""
    plan = Plan()
    for line in dryrun.split("\n"):
        if not line.startswith("#$ "):
            if line.strip():
                raise NotUnderstood(line.strip()[:200])
            continue
        line = line[3:].strip()
        if re.match(r"\w+=", line) or _IGNORED.fullmatch(line):
            continue
        for name, value in variables.items():
            line = line.replace(f"${name}", value)
        try:
            _step(plan, shlex.split(_TEMPORARY.sub("", line)))
        except (ValueError, IndexError) as error:
            raise NotUnderstood(f"{error}: {line[:200]}") from error
    _check(plan)
    return plan


def _step(plan: Plan, words: list[str]) -> None:
    program = words[0].rsplit("/", 1)[-1]
    if program == "gcc" or "-x" in words:
        if "-E" in words and any(word.startswith("-D__CUDA_ARCH__=") for word in words):
            architecture = next(word for word in words if word.startswith("-D__CUDA_ARCH__="))[16:]
            plan.devices.append(Device(architecture.removesuffix("0"), words))
        elif "-E" in words:
            plan.preprocess = _once(plan.preprocess, words)
        elif "-c" in words and words[-2:] == ["-o", "cuda.o"] and words[-3].endswith(".cudafe1.cpp"):
            plan.host = _once(plan.host, words)
        else:
            raise ValueError("an unknown call of the host compiler")
    elif program == "cudafe++":
        plan.cudafe = _once(plan.cudafe, [word for word in words if word != "--gen_module_id_file"])
    elif program == "cicc":
        plan.devices[-1].cicc = _once(plan.devices[-1].cicc, words)
    elif program == "ptxas":
        plan.devices[-1].ptxas.append(words)
    elif program == "fatbinary":
        plan.fatbinary = _once(plan.fatbinary, words)
    else:
        raise ValueError(f"an unknown program {program}")


def _once(before: list[str], words: list[str]) -> list[str]:
    if before:
        raise ValueError("a second time")
    return words


def _check(plan: Plan) -> None:
    """Whether every step is there and reads what the one before it wrote."""
    steps = {"gcc -E": plan.preprocess, "cudafe++": plan.cudafe, "fatbinary": plan.fatbinary, "gcc -c": plan.host}
    if missing := [name for name, words in steps.items() if not words]:
        raise NotUnderstood(f"no {missing[0]} in nvcc's plan")
    if not plan.devices:
        raise NotUnderstood("no device architecture in nvcc's plan")
    texts = [plan.cudafe[-1], *(device.cicc[-3] if device.cicc else "" for device in plan.devices)]
    if texts != [plan.preprocess[-1], *(device.preprocess[-1] for device in plan.devices)]:
        raise NotUnderstood("a front end reads something else than the preprocessed unit")
    written = {device.cicc[-1] for device in plan.devices}
    for device in plan.devices:
        for words in device.ptxas:
            if words[-3] not in written or words[-2] != "-o":
                raise NotUnderstood("ptxas reads something else than what cicc wrote")
            written.add(words[-1])
    images = [word.rsplit("file=", 1)[-1] for word in plan.fatbinary if word.startswith("--image3=")]
    if not images or not written.issuperset(images):
        raise NotUnderstood("fatbinary packs something else than what cicc and ptxas wrote")
    if plan.host[-3] != option(plan.cudafe, "--gen_c_file_name"):
        raise NotUnderstood("the host compiler reads something else than what cudafe++ wrote")


def option(words: list[str], name: str) -> str:
    """The value of an option. Raises NotUnderstood when it is not there."""
    try:
        return words[words.index(name) + 1]
    except (ValueError, IndexError) as error:
        raise NotUnderstood(f"{words[0]} without {name}") from error

"""A plan: stock's build.ninja, read.
Whatever is not understood to the last word makes it unsupported.

What a caller says ends up in it: in flags, in names of files, in the target. So nothing of it is
taken on trust: each variable is set once, holds words and nothing that ninja or the shell would act
on, and a name of a file is one word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from warmcc.daemon.toolchain import shell

_VARIABLES = {
    "ninja_required_version", "cxx", "nvcc", "cflags", "post_cflags", "cuda_cflags",
    "cuda_post_cflags", "cuda_dlink_post_cflags", "sycl", "sycl_cflags", "sycl_post_cflags",
    "sycl_dlink_post_cflags", "ldflags",
}  # fmt: skip
_NVCC = "$nvcc {} $cuda_cflags -c $in -o $out $cuda_post_cflags"
_RULES = {
    "compile": ["$cxx -MMD -MF $out.d $cflags -c $in -o $out $post_cflags"],
    "cuda_compile": [
        _NVCC.format("-MD -MF $out.d"),
        _NVCC.format("--generate-dependencies-with-compile --dependency-output $out.d"),
    ],
    "link": ["$cxx $in $ldflags -o $out"],
}
_OTHER_RULES = {
    "cuda_devlink": "CUDA device linking", "sycl_compile": "SYCL sources",
    "sycl_devlink": "SYCL device linking",
}  # fmt: skip
_KEPT = ("cxx", "cflags", "post_cflags", "nvcc", "cuda_cflags", "cuda_post_cflags", "ldflags")
# Ninja has no way to write a bar in a name
_NOT_IN_NAMES = re.compile(rf"{shell.CONTROL.pattern}|\|")


@dataclass(frozen=True)
class PlannedUnit:
    """A source file's path, the name of its object, and whether nvcc compiles it."""

    source: str
    object: str
    cuda: bool = False


@dataclass
class Plan:
    """What stock would run.
    Flags are verbatim, with ninja's ``$`` escapes. ``unsupported`` says what is not understood,
    or is None. ``scratch`` is the directory that stands for the build directory in ``ninja``."""

    ninja: str
    sources: dict[str, str]
    warnings: list[str]
    scratch: str
    cxx: str = ""
    cflags: str = ""
    post_cflags: str = ""
    nvcc: str = ""
    cuda_cflags: str = ""
    cuda_post_cflags: str = ""
    ldflags: str = ""
    target: str = ""
    units: list[PlannedUnit] = field(default_factory=list)
    unsupported: str | None = None

    @property
    def links(self) -> bool:
        """Whether its objects are linked; what is planned of one object alone ends with it."""
        return all(unit.object != self.target for unit in self.units)


def parse(ninja: str, sources: dict[str, str], warnings: list[str], scratch: str) -> Plan:
    """Read stock's build.ninja."""
    plan = Plan(ninja, sources, warnings, scratch)
    try:
        _read(plan, ninja)
    except ValueError as reason:
        plan.unsupported = str(reason)
    return plan


def _read(plan: Plan, ninja: str) -> None:
    rule, known = "", set[str]()
    for line in ninja.split("\n"):
        if not line.strip():
            continue
        if line.startswith("  "):
            _check_rule(rule, line.strip())
        elif match := re.fullmatch(r"([a-z_]+) = ?(.*)", line):
            _variable(plan, match[1], match[2].strip(), known)
        elif line.startswith("rule "):
            rule = line[5:]
            if rule not in _RULES:
                raise ValueError(
                    _OTHER_RULES.get(rule, f"unknown rule {rule} in stock's build.ninja")
                )
        elif line.startswith("build "):
            _build_line(plan, line)
        elif not line.startswith("default "):
            raise ValueError(f"unknown line in stock's build.ninja: {line[:80]}")
    if not plan.target or not plan.units:
        raise ValueError("nothing to link in stock's build.ninja")


def _variable(plan: Plan, name: str, value: str, known: set[str]) -> None:
    if name not in _VARIABLES:
        raise ValueError(f"unknown variable {name} in stock's build.ninja")
    if name in known:
        raise ValueError(f"stock's build.ninja sets {name} twice")
    known.add(name)
    if name in _KEPT:
        if (reason := shell.acts_on(value)) is not None:
            raise ValueError(f"{name} in stock's build.ninja: {reason}")
        setattr(plan, name, value)


def _check_rule(rule: str, line: str) -> None:
    name, _, value = line.partition(" = ")
    if name == "command":
        if value not in _RULES[rule]:
            raise ValueError(f"unknown command of rule {rule} in stock's build.ninja")
    elif name not in ("depfile", "deps"):
        raise ValueError(f"unknown setting {name} of rule {rule} in stock's build.ninja")


def _build_line(plan: Plan, line: str) -> None:
    words = [re.sub(r"\$([ :$])", r"\1", word) for word in re.findall(r"(?:\$.|[^\s$])+", line[6:])]
    if len(words) < 3:
        raise ValueError(f"unknown build line in stock's build.ninja: {line[:80]}")
    output, rule, inputs = words[0].removesuffix(":"), words[1], words[2:]
    for name in (output, *inputs):
        if _NOT_IN_NAMES.search(name) or name.startswith(
            ("-", "@")
        ):  # a linker would take it for an option
            raise ValueError(f"the file name {name[:80]!r}")
    if rule in ("compile", "cuda_compile") and len(inputs) == 1:
        plan.units.append(PlannedUnit(inputs[0], output, rule == "cuda_compile"))
    elif rule == "link" and inputs == [unit.object for unit in plan.units]:
        plan.target = output
    else:
        raise ValueError(
            _OTHER_RULES.get(rule, f"unknown build line in stock's build.ninja: {line[:80]}")
        )

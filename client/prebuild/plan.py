"""The plan of a package: a job for each variant, before anything is built."""

from __future__ import annotations

import keyword
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from warmcc import digest
from warmcc.client.calls import arguments as args
from warmcc.client.prebuild import space
from warmcc.client.prebuild.space import Parameters, Value
from warmcc.client.prebuild.template import Template
from warmcc.errors import RequestError

FORMAT = 1
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]{0,99}")
_VERSION = re.compile(r"\d+(?:\.\d+)*(?:(?:a|b|rc)\d+)?(?:\.(?:post|dev)\d+)?")
_TAKEN = {"torch", "warmcc"}
# The package decides these, or they have no place in one
_NOT_GIVEN = {
    "name", "build_directory", "is_python_module", "keep_intermediates", "use_pch", "verbose",
    "sycl_sources", "extra_sycl_cflags", "with_sycl",
}  # fmt: skip


@dataclass(frozen=True)
class Job:
    """One variant. ``module`` is the name of its extension; ``id`` a digest of what is built, the
    same on each machine."""

    number: int
    key: str
    parameters: Parameters
    module: str
    arguments: dict[str, Any]
    id: str


@dataclass(frozen=True)
class Plan:
    """``entry`` is the function that a variant calls."""

    name: str
    version: str
    entry: str
    jobs: list[Job]


def plan(
    name: str, variants: Iterable[Mapping[str, Value]], template: Template, *, entry: str | None,
    version: str,
) -> Plan:  # fmt: skip
    """Raises RequestError for what cannot become a package."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise RequestError(f"{name!r} is no name of a Python package")
    if name in _TAKEN:
        raise RequestError(f"a package {name!r} would hide {name} itself; take another name")
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise RequestError(f"{version!r} is no version of a package, such as '1.0'")
    chosen = space.checked(variants)
    template.check(list(chosen[0]))
    jobs = [_job(name, number, one, template) for number, one in enumerate(chosen)]
    return Plan(name, version, _entry(entry, jobs), jobs)


def _job(name: str, number: int, parameters: Parameters, template: Template) -> Job:
    key = space.key_of(parameters)
    given = template.arguments_of(parameters)
    if isinstance(paths := given.get("extra_include_paths"), list):
        given["extra_include_paths"] = [os.path.abspath(path) for path in paths]
    gpus = os.environ.get("TORCH_CUDA_ARCH_LIST", "").replace(";", " ").split()
    if gpus and given.get("cuda_sources") and given.get("architectures") is None:
        given["architectures"] = gpus  # another machine may have another variable
    if wrong := sorted(_NOT_GIVEN & set(given)):
        raise RequestError(f"{wrong[0]} cannot be given for a package of variants")
    try:
        args.complete("load_inline", {"name": key, **_without_architectures(given)})
        content = digest.of_value([FORMAT, name, key, given])
    except (TypeError, UnicodeEncodeError) as error:
        raise RequestError(f"variant {key!r}: an argument cannot be sent: {error}") from None
    return Job(number, key, parameters, f"{name}_{content[:12]}", given, content)


def _without_architectures(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name != "architectures"}


def _entry(entry: str | None, jobs: list[Job]) -> str:
    """The function that a variant calls: the one that is named, or the first that is bound."""
    functions = [job.arguments.get("functions") for job in jobs]
    bound = [[one] if isinstance(one, str) else list(one or []) for one in functions]
    if entry is None:
        entry = next((names[0] for names in bound if names), None)
    if entry is None:
        raise RequestError("name the function that a variant calls: functions, or entry")
    for job, names in zip(jobs, bound, strict=True):
        if names and entry not in names:
            raise RequestError(f"variant {job.key!r} has no function {entry!r}")
    return entry

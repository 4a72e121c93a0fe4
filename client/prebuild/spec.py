"""A spec file: a call of ``prebuild`` as TOML, for ``warmcc prebuild``."""

from __future__ import annotations

import difflib
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warmcc.client.prebuild.space import Parameters, Space
from warmcc.client.prebuild.template import Template, macros
from warmcc.errors import RequestError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_FILES = {"cpp_files": "cpp_sources", "cuda_files": "cuda_sources"}
_ARGUMENTS = {
    "architectures": list, "cpp_sources": (str, list), "cuda_sources": (str, list),
    "functions": (str, list, dict), "extra_cflags": list, "extra_cuda_cflags": list,
    "extra_ldflags": list, "extra_include_paths": list, "with_cuda": bool,
    "with_pytorch_error_handling": bool, "no_implicit_headers": bool,
}  # fmt: skip
_OWN = {
    "name": str, "version": str, "entry": str, "cpp_files": list, "cuda_files": list,
    "defines": (list, dict), "template": str, "constraints": list, "parameters": dict,
    "variants": list, "sample": dict,
}  # fmt: skip
_SAMPLE = {"method": str, "count": int, "seed": int}
_METHODS = ("all", "random", "latin_hypercube")


@dataclass(frozen=True)
class Spec:
    """What a file says. ``size`` is the space's, without its constraints."""

    name: str
    version: str
    entry: str | None
    variants: list[Parameters]
    template: Template
    size: int


def read(path: Path) -> Spec:
    """Raises RequestError, which names the file."""
    try:
        return _spec(tomllib.loads(path.read_text(encoding="utf-8")), path.parent)
    except OSError as error:
        name = error.filename or path
        raise RequestError(f"{path}: {name} cannot be read: {error.strerror}") from None
    except ValueError as error:  # TOML, or text that is not UTF-8
        raise RequestError(f"{path}: {error}") from None
    except RequestError as error:
        raise RequestError(f"{path}: {error}") from error


def _spec(data: dict[str, Any], folder: Path) -> Spec:
    _check(data, {**_OWN, **_ARGUMENTS}, "")
    if "name" not in data:
        raise RequestError("name is missing: the package's name")
    if ("parameters" in data) == ("variants" in data):
        raise RequestError("give either [parameters], or [[variants]] as a list")
    space = Space(data.get("parameters") or data.get("variants", {}), data.get("constraints", []))
    arguments = {name: data[name] for name in _ARGUMENTS if name in data}
    for files, sources in _FILES.items():
        texts = [(folder / str(one)).read_text(encoding="utf-8") for one in data.get(files, [])]
        if texts:
            given = arguments.get(sources, [])
            arguments[sources] = [*([given] if isinstance(given, str) else given), *texts]
    if "extra_include_paths" in arguments:
        paths = arguments["extra_include_paths"]
        arguments["extra_include_paths"] = [str(folder.absolute() / str(one)) for one in paths]
    function = loaded(data["template"], folder) if "template" in data else None
    template = Template(arguments, macros(data.get("defines", [])), function)
    chosen = _sampled(space, data.get("sample", {}))
    return Spec(
        data["name"], data.get("version", "0.0.0"), data.get("entry"), chosen, template, space.size
    )


def _sampled(space: Space, sample: Mapping[str, Any]) -> list[Parameters]:
    _check(sample, _SAMPLE, "sample.")
    method = sample.get("method", "all")
    if method not in _METHODS:
        raise RequestError(f"sample.method is {method!r}; it can be {', '.join(_METHODS)}")
    if (method != "all") != ("count" in sample):
        raise RequestError(
            f"sample.count is missing: how many variants {method} takes"
            if method != "all"
            else "sample.count needs a method: random, or latin_hypercube"
        )
    if method == "all":
        return space.all()
    take = space.random if method == "random" else space.latin_hypercube
    return take(sample["count"], sample.get("seed", 0))


def _check(data: Mapping[str, Any], known: Mapping[str, Any], inside: str) -> None:
    """Raises RequestError for a key that is unknown, or has a value of another type."""
    for name, value in data.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            advice = f"did you mean {inside}{near[0]}?" if near else "see docs/user/prebuild.md"
            raise RequestError(f"unknown key {inside}{name}; {advice}")
        if not isinstance(value, known[name]) or (known[name] is int and isinstance(value, bool)):
            kinds = known[name] if isinstance(known[name], tuple) else (known[name],)
            names = {str: "a text", list: "a list", dict: "a table", bool: "true or false"}
            wanted = " or ".join(names.get(kind, "a number") for kind in kinds)
            raise RequestError(f"{inside}{name} is {value!r}; it must be {wanted}")


def loaded(place: str, folder: Path) -> Any:
    """A function of a Python file, which is run: ``file.py:function``. Raises RequestError."""
    file, _, name = place.rpartition(":")
    path = folder / file
    if not file.endswith(".py") or not name.isidentifier():
        raise RequestError(f"{place!r} is no function of a file; write it as file.py:function")
    if not path.is_file():
        raise RequestError(f"{place!r}: there is no file {path}")
    found = importlib.util.spec_from_file_location(f"warmcc_spec_{path.stem}", path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    try:
        found.loader.exec_module(module)
    except Exception as error:
        raise RequestError(f"{path} fails: {type(error).__name__}: {error}") from error
    if not callable(function := getattr(module, name, None)):
        raise RequestError(f"{path} has no function {name!r}")
    return function

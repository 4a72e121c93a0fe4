"""From a variant's parameters to the arguments of its build."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from warmcc.client.prebuild.space import Parameters, Value, text_of
from warmcc.errors import RequestError

Function = Callable[[Parameters], Mapping[str, Any]]

_PLACE = re.compile(r"\{\{\s*([A-Za-z_]\w*)\s*\}\}")
_MACRO = re.compile(r"[A-Za-z_]\w*")
_FLAGS = ("extra_cflags", "extra_cuda_cflags")


@dataclass(frozen=True)
class Template:
    """``arguments`` are those of ``warmcc.build_inline``; ``{{name}}`` in their texts stands for a
    parameter's value. ``defines`` are macros that are defined as a parameter's value; ``function``
    gives arguments that depend on the parameters, which replace others."""

    arguments: Mapping[str, Any]
    defines: Mapping[str, str] = field(default_factory=dict)
    function: Function | None = None

    def check(self, names: Collection[str]) -> None:
        """Each parameter is used, and nothing else is. Raises RequestError."""
        used = set(self.defines.values())
        for argument, value in self.arguments.items():
            for name in _places(value):
                if name not in names:
                    raise RequestError(
                        f"{argument} has {{{{{name}}}}}, and there is no parameter {name!r}; where "
                        "these are braces of C++, put a space between them"
                    )
                used.add(name)
        if unknown := sorted(used - set(names)):
            raise RequestError(f"defines names {unknown[0]!r}, which is no parameter")
        if unused := [name for name in names if name not in used and self.function is None]:
            raise RequestError(
                f"nothing depends on the parameter {unused[0]!r}: write {{{{{unused[0]}}}}} in a "
                "source or a flag, or add it to defines"
            )

    def arguments_of(self, parameters: Parameters) -> dict[str, Any]:
        """The arguments of one variant's build. Raises RequestError for what the function does."""
        found = {name: _filled(value, parameters) for name, value in self.arguments.items()}
        if self.function is not None:
            found.update(self._of_function(self.function, parameters))
        words = [f"-D{name}={_defined(parameters[of])}" for name, of in self.defines.items()]
        for name in _FLAGS if words else ():
            found[name] = [*(found.get(name) or []), *words]
        return found

    def _of_function(self, function: Function, parameters: Parameters) -> Mapping[str, Any]:
        try:
            made = function(dict(parameters))
        except Exception as error:
            raise RequestError(
                f"the template's function fails for {parameters}: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(made, Mapping) or not all(isinstance(name, str) for name in made):
            raise RequestError(
                f"the template's function gives {type(made).__name__} for {parameters}; it must "
                "give a map of arguments, such as {'cuda_sources': text}"
            )
        return made


def macros(given: Iterable[str] | Mapping[str, str]) -> dict[str, str]:
    """Macros and the parameters that they are defined as. Raises RequestError.

    >>> macros(["TILE"]), macros({"TILE_SIZE": "tile"})
    ({'TILE': 'TILE'}, {'TILE_SIZE': 'tile'})
    """
    if isinstance(given, str):
        raise RequestError("defines is one text; give a list of parameters")
    found = dict(given) if isinstance(given, Mapping) else {name: name for name in given}
    for name, of in found.items():
        if not isinstance(name, str) or not _MACRO.fullmatch(name) or not isinstance(of, str):
            raise RequestError(f"defines: {name!r} is no macro for a parameter")
    return found


def _places(value: Any) -> list[str]:
    """The parameters that are named in the texts of a value."""
    if isinstance(value, str):
        return _PLACE.findall(value)
    if isinstance(value, Mapping):
        return [name for pair in value.items() for one in pair for name in _places(one)]
    if isinstance(value, (list, tuple)):
        return [name for one in value for name in _places(one)]
    return []


def _filled(value: Any, parameters: Parameters) -> Any:
    if isinstance(value, str):
        return _PLACE.sub(lambda found: text_of(parameters[found[1]]), value)
    if isinstance(value, Mapping):
        return {_filled(name, parameters): _filled(one, parameters) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_filled(one, parameters) for one in value]
    return value


def _defined(value: Value) -> str:
    """A value as a macro has it, which conditions of the preprocessor can ask for."""
    return str(int(value)) if isinstance(value, bool) else str(value)

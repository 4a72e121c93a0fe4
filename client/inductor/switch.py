"""``warmcc.inductor.enable`` and ``disable``: put warmcc's functions in the place of torch's.

What was replaced is kept with the replacement, in torch's module: a fork of a zygote, which has
enabled it with modules of warmcc that are gone, can still disable it.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from warmcc.client.inductor import checks, commands, cubins, headers, helpers, packed
from warmcc.client.inductor.way_back import give_way
from warmcc.client.replacing.at_import import AtImport
from warmcc.client.replacing.switched import Switched

_ORIGINAL = "_warmcc_original"
_lock = threading.RLock()


class _Place(NamedTuple):
    """A function of torch's. ``names``: what it is called, the first that is there counts (with a
    class in front of a dot); ``parameters``: those that it must begin with. Where ``newer``, an
    older torch does without it."""

    names: tuple[str, ...]
    parameters: tuple[str, ...]
    replace: Callable[[Any], Any]
    newer: bool = False


_PLACES = {
    "torch._inductor.cpp_builder": [
        _Place(("run_compile_cmd", "run_command_line"), ("cmd_line", "cwd"), commands.served),
        _Place(("cpp_compiler_search",), ("search",), packed.found_anyway, newer=True),
    ],
    "torch._inductor.codecache": [
        _Place(
            ("_precompile_header",), ("header", "hashable_cmd_line"), headers.left_out, newer=True
        )
    ],
    "torch._inductor.cpu_vec_isa": [
        _Place(("VecISA.check_build",), ("self", "code"), checks.remembered, newer=True)
    ],
    "torch._inductor.runtime.triton_heuristics": [
        _Place(
            ("check_autotune_cache",),
            ("configs", "filename", "inductor_meta"),
            cubins.of_this_machine,
            newer=True,
        )
    ],
    "triton.runtime.cache": [
        _Place(
            ("FileCacheManager.get_group",), ("self", "filename"), cubins.from_bundles, newer=True
        )
    ],
    "triton.runtime.build": [
        _Place(("_build",), ("name", "src", "srcdir"), helpers.from_bundles, newer=True)
    ],
}
_LAST = "torch._inductor.compile_fx"  # imported in front of the first compile


def enable(*, artifacts: bool = True) -> Switched:
    """Have the daemon compile what torch.compile compiles with a C++ compiler, in this process.

    ``with warmcc.inductor.enable(): …`` does it for a block. Once more changes nothing. Torch is
    not imported for it. Where this torch is not as expected, it warns, and torch does without.
    ``artifacts``: torch gets the artifacts of unpacked bundles at the import of Inductor.
    """
    with _lock:
        is_first = not is_enabled()
        if is_first:
            then: dict[str, Callable[[ModuleType], None]] = dict.fromkeys(_PLACES, _put)
            if artifacts:
                then[_LAST] = packed.begin
            sys.meta_path.insert(0, AtImport(then))
            for name, begin in then.items():
                if (module := sys.modules.get(name)) is not None:
                    begin(module)
        elif artifacts and (module := sys.modules.get(_LAST)) is not None:
            packed.begin(module)  # a zygote has enabled it without
        return Switched(disable, is_first=is_first)


def disable() -> None:
    """Give torch its own functions back. Nothing happens where it is not enabled."""
    with _lock:
        sys.meta_path[:] = [one for one in sys.meta_path if not _is_ours(one)]
        packed.give_compiler_back()
        for name, places in _PLACES.items():
            for place in places if name in sys.modules else ():
                holder, attribute, found = _find(sys.modules[name], place)
                if (original := getattr(found, _ORIGINAL, None)) is not None:
                    setattr(holder, attribute, original)


def is_enabled() -> bool:
    """Whether torch's functions are replaced, or will be when they are imported."""
    return any(map(_is_ours, sys.meta_path))


def _is_ours(finder: Any) -> bool:
    """By name: the class may be that of a module which was imported before this one."""
    return (type(finder).__module__, type(finder).__name__) == (AtImport.__module__, "AtImport")


def _put(module: ModuleType) -> None:
    for place in _PLACES[module.__name__]:
        _put_one(module, place)


def _put_one(module: ModuleType, place: _Place) -> None:
    holder, attribute, found = _find(module, place)
    if found is None:
        if not place.newer:
            give_way(f"{module.__name__} has no {' or '.join(place.names)}")
    elif hasattr(found, _ORIGINAL):
        return
    elif _parameters(found)[: len(place.parameters)] != place.parameters:
        give_way(f"{module.__name__}.{attribute} has other parameters than expected")
    else:
        ours = place.replace(found)
        setattr(ours, _ORIGINAL, found)
        setattr(holder, attribute, ours)


def _find(module: ModuleType, place: _Place) -> tuple[Any, str, Any]:
    """Where a function is kept, under which name, and the function; None where it is not there."""
    for name in place.names:
        first, _, last = name.rpartition(".")
        holder = getattr(module, first, None) if first else module
        if (found := getattr(holder, last, None)) is not None:
            return holder, last, found
    return None, "", None


def _parameters(function: Any) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()

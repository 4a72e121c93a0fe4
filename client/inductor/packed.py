"""Compiled models in bundles: what torch.compile had compiled is recorded, and found again.

A library is found by the text of its source and its flags, without folders: Inductor's own names
have the folders of the machine in them. Torch's cache artifacts, which have the rest of a compile
(generated Python, machine code of Triton's kernels, choices of autotuning), are packed as torch
gives them, and are torch's to load.
"""

from __future__ import annotations

import functools
import os
import shlex
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from warmcc.client.calls import arguments as args
from warmcc.client.calls import bundled
from warmcc.client.notices import warn_once
from warmcc.errors import WarmccError, WarmccWarning
from warmcc.protocol import Built
from warmcc.request import Request

NAME = "torch.compile"
_ANY_COMPILER = (None, "g++")  # torch's default; in the keys of torch's artifacts
_OWN = "_warmcc_own"
_begun = False
_FOLDERS = ("-I", "-L", "-isystem", "-iquote", "-idirafter")


def portable(request: Request) -> Request:
    """A request as another machine has it: without folders, and without names made of them."""
    return msgspec.structs.replace(
        request, name=NAME, module_name=NAME, build_directory=None,
        extra_cflags=_without_folders(request.extra_cflags),
        extra_ldflags=_without_folders(request.extra_ldflags),
    )  # fmt: skip


def _without_folders(words: list[str]) -> list[str]:
    """Flags, each quoted as in a build.ninja, but for those that name a folder.

    >>> _without_folders(["-O3", "-I/usr/include", "'-L/a b'", "-isystem", "/c", "-lgomp"])
    ['-O3', '-lgomp']
    """
    found, rest = [], iter(words)
    for word in rest:
        (plain,) = shlex.split(word)
        if plain in _FOLDERS:
            next(rest, None)
        elif not plain.startswith(_FOLDERS):
            found.append(word)
    return found


def answer(request: Request) -> Built | None:
    """The result from an unpacked bundle, if one has it for this machine. Raises OfflineError
    where nothing else is allowed, OSError."""
    return bundled.answer(portable(request))


def record(request: Request, built: Built) -> None:
    """Keep an answer for ``warmcc pack --record``, if this process is recorded.
    Raises BundleError."""
    if bundled.is_recorded():
        bundled.record(portable(request), built)


def record_left(reason: str) -> None:
    """Keep that Inductor ran its compiler itself, so that a bundle would lack the result.
    Raises BundleError."""
    if bundled.is_recorded():
        bundled.record_stock(f"a source of torch.compile ({reason})")


# ---------------------------------------------------------------------- without a compiler


def found_anyway(original: Callable[..., Any]) -> Callable[..., Any]:
    """What stands in the place of the function that looks for a compiler: where there is none, and
    a bundle has compiled models, the name counts, as flags depend on it."""
    chosen: dict[Any, str] = {}

    @functools.wraps(original)
    def cpp_compiler_search(search: Any) -> Any:
        if search == _ANY_COMPILER:
            search = getattr(cpp_compiler_search, _OWN) or search
        try:
            return chosen.get(search) or original(search)
        except Exception:
            name = next((one for one in reversed(search) if one), None)
            if name is None or not _is_any_unpacked():
                raise
            chosen[search] = name
            return name

    setattr(cpp_compiler_search, _OWN, None)
    return cpp_compiler_search


def _leave_out_compiler() -> None:
    """The keys of torch's artifacts have the compiler's name (``$CXX``), which is another one on
    another machine: the configuration gets the default's name, and the search looks for the
    process's."""
    config, builder = map(_module_of_inductor, ("config", "cpp_builder"))
    search = getattr(builder, "cpp_compiler_search", None)
    if hasattr(search, _OWN) and config.cpp.cxx != _ANY_COMPILER:
        setattr(search, _OWN, config.cpp.cxx)
        config.cpp.cxx = _ANY_COMPILER


def give_compiler_back() -> None:
    """The reverse, before torch gets its function back; what was set since then stays."""
    config, builder = map(_module_of_inductor, ("config", "cpp_builder"))
    own = getattr(getattr(builder, "cpp_compiler_search", None), _OWN, None)
    if own is not None and config.cpp.cxx == _ANY_COMPILER:
        config.cpp.cxx = own


def _module_of_inductor(name: str) -> Any:
    return sys.modules.get(f"torch._inductor.{name}")


def _is_any_unpacked() -> bool:
    if not bundled.are_there():
        return False
    from warmcc.client.bundles import finding

    try:
        return finding.has(NAME)
    except WarmccError:
        return False


# ---------------------------------------------------------------------- torch's cache artifacts


def begin(_module: ModuleType) -> None:
    """Once Inductor is imported: give torch the artifacts of unpacked bundles; in a recorded
    process, keep those that it has at its end. Both happen once."""
    global _begun
    if bundled.is_recorded() or bundled.are_there():
        _leave_out_compiler()
    if _begun:
        return
    _begun = True
    if bundled.is_recorded():
        import atexit

        atexit.register(_keep_artifacts)
    elif bundled.are_there():
        from warmcc.client.bundles import finding, layout

        try:
            for path in finding.data(layout.ARTIFACTS):
                _give(path)
        except (WarmccError, OSError) as error:
            warn_once(f"torch's cache artifacts are not loaded: {error}", WarmccWarning)


def _give(path: str) -> None:
    torch: Any = sys.modules["torch"]
    with open(path, "rb") as file:
        torch.compiler.load_cache_artifacts(file.read())


def _keep_artifacts() -> None:
    """Raises BundleError, which Python prints: the command has ended already."""
    torch: Any = sys.modules.get("torch")
    saved = torch.compiler.save_cache_artifacts() if torch is not None else None
    if saved is None:
        return
    from warmcc.client.bundles import recording

    with tempfile.TemporaryDirectory(prefix="warmcc-artifacts-") as folder:
        path = Path(folder) / "artifacts"
        path.write_bytes(saved[0])
        recording.keep_data(str(path), args.interpreter(), os.getpid())

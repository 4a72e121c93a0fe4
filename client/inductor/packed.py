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
        try:
            return chosen.get(search) or original(search)
        except Exception:
            name = next((one for one in reversed(search) if one), None)
            if name is None or not _is_any_unpacked():
                raise
            chosen[search] = name
            return name

    return cpp_compiler_search


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
    process, keep those that it has at its end."""
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

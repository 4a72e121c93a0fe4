"""Which C++ sources a ``setup.py`` compiles with the same flags: the daemon makes first what many
of them begin with.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from typing import Any

_CPP = (".cpp", ".cc", ".cxx")
_FLAGS = ("extra_compile_args", "define_macros", "undef_macros", "include_dirs")
_extensions: list[tuple[str, list[str]]] = []  # flags and sources of what setuptools will build


def announce(command: Any) -> None:
    """Note what a ``build_ext`` of setuptools is about to build."""
    _extensions.clear()
    # Extensions may be of any kind; they are built without what is noted here
    with contextlib.suppress(AttributeError, OSError, TypeError, ValueError):
        for extension in command.extensions:
            flags = [str(getattr(extension, name)) for name in _FLAGS]
            sources = [os.path.abspath(source) for source in _cpp(extension.sources)]
            made = os.path.abspath(command.get_ext_fullpath(extension.name))
            if command.force or any(_is_older(made, source) for source in sources):
                _extensions.append(("\n".join(flags), sources))


def to_compile(given: Mapping[str, Any]) -> list[str]:
    """The C++ sources that have no object yet, or an older one, among those that torch's
    ``_write_ninja_file_and_compile_objects`` was ``given``, and those of extensions with the same
    flags."""
    objects = dict(zip(map(os.path.abspath, given["sources"]), given["objects"], strict=True))
    own = [source for source in _cpp(objects) if _is_older(objects[source], source)]
    return [*own, *(source for source in with_flags_of(objects) if source not in objects)]


def with_flags_of(sources: Iterable[str]) -> list[str]:
    """The C++ sources of extensions with the flags of the one that has these (normal paths)."""
    known = set(sources)
    flags = next((flags for flags, theirs in _extensions if not known.isdisjoint(theirs)), None)
    return [source for one, theirs in _extensions if one == flags for source in theirs]


def _cpp(sources: Iterable[str]) -> list[str]:
    return [source for source in sources if source.endswith(_CPP)]


def _is_older(path: str, source: str) -> bool:
    """Whether a file is older than its source, or not there."""
    try:
        return os.path.getmtime(path) <= os.path.getmtime(source)
    except OSError:
        return True

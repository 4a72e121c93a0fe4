"""The inputs of an assembler (``.incbin``, ``.include``), which ``-MD`` does not list.

GNU's assembler says it itself (``--MD``), and what it read goes into the closure with all else.
Where it says nothing (another assembler, an object that came out of ccache, link-time optimisation,
which assembles later), a result is kept only if no file of the user's can hold any assembler at
all.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from warmcc.daemon.toolchain import ninja

SUFFIX = ".as.d"  # behind the object's name
_MAY_HOLD = re.compile(rb"asm|##", re.I)  # what is pasted may make the word
_PIPE = ("{standard", "input}")  # how it calls what it is handed through a pipe
_HOSTS = re.compile(r"tmpxft_[0-9a-f]+_[0-9a-f]+-\d+_(.+)\.cudafe1\.cpp")  # nvcc's, for the host


def option(place: Path | str) -> str:
    """The compiler's option that makes the assembler list its inputs; empty if there is none."""
    return "" if "," in str(place) else f"-Wa,--MD,{place}"


def read(depfile: Path, cwd: Path) -> list[str]:
    """The inputs that the assembler listed, as absolute paths.
    Among them are the compiler's temporary output, which is gone, and names from ``#line``.
    Raises OSError when there are none."""
    return [
        path for path in ninja.dependencies(depfile, cwd) if os.path.basename(path) not in _PIPE
    ]


def is_unit(name: str, source: str) -> bool:
    """Whether a compiler calls its input so (``.file``), which the assembler lists among its own.
    It is the name of the ``source`` without its folder; with nvcc one of nvcc's files.

    >>> is_unit("add.cpp", "csrc/add.cpp"), is_unit("csrc/add.cpp", "csrc/add.cpp")
    (True, False)
    >>> is_unit("tmpxft_00004e0c_00000000-6_add.cudafe1.cpp", "/src/add.cu")
    True
    """
    base = os.path.basename(source)
    match = _HOSTS.fullmatch(name)
    return name == base or (match is not None and match[1] == os.path.splitext(base)[0])


def in_text(text: str) -> bool:
    """Whether a source may hold assembler. Errs on the side of yes."""
    return _may_hold(text.encode("utf-8", "surrogateescape"))


def first(paths: Iterable[str]) -> str | None:
    """The first of some files that may. Raises OSError."""
    return next((path for path in paths if _may_hold(Path(path).read_bytes())), None)


def _may_hold(content: bytes) -> bool:
    return _MAY_HOLD.search(content) is not None

"""What no daemon builds: texts that a shell, ninja or a file system could read otherwise.
Such a call is left to stock, and so is stock's error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from warmcc.daemon.toolchain.shell import CONTROL
from warmcc.request import Request

# A library's name and a program's: part of file names and of commands, and an option to neither.
FILE_NAME = re.compile(r"\w[\w.+-]*")
# The fields that hold text for a compiler, which has lines.
TEXTS = frozenset({"cpp_sources", "cuda_sources", "sycl_sources", "functions"})
NOT_IN_TEXTS = re.compile(r"[\x00-\x08\x0e-\x1f]")


def why_not(request: Request) -> str | None:
    """Why a request is stock's because of a text in it; None when none of them is."""
    for name in (request.name, request.module_name):
        if (
            reason := _of_name(name, module=request.is_python_module and not request.is_standalone)
        ) is not None:
            return reason
    for field in request.__struct_fields__:
        forbidden = NOT_IN_TEXTS if field in TEXTS else CONTROL
        if any(forbidden.search(text) for text in _texts(getattr(request, field))):
            return f"a control character in {field}"
    return None


def _of_name(name: str, *, module: bool) -> str | None:
    if FILE_NAME.fullmatch(name) is None:
        return "invalid extension name (must be a file name)"
    if module and not name.isidentifier():
        return "invalid extension name (must be a Python identifier)"
    return None


def _texts(value: Any) -> Iterator[str]:
    """Every string in a value, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for pair in value.items():
            yield from _texts(pair)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, msgspec.Struct):
        yield from _texts(msgspec.structs.astuple(value))

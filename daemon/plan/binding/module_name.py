"""Whether a unit means the same under every module's name.

The declarations of kernels that have a unit of their own do: compiled without the name, with the
module's entry point beside them, they are found again by every extension that declares the same.
"""

from __future__ import annotations

import re

_DEFINE = re.compile(r"(?:^|(?<=\s))-DTORCH_EXTENSION_NAME=\S+\s*")
_STOCKS = "#include <torch/extension.h>\n"
# Of torch or the standard library, none of which knows TORCH_EXTENSION_NAME.
_COMMON = re.compile(
    r"^#include <(?:(?:torch|ATen|c10)(?:/\w+)+\.\w+|algorithm|array|cmath|cstddef|cstdint"
    r"|functional|iostream|limits"
    r"|map|memory|optional|stdexcept|string|tuple|unordered_map|utility|vector)>$",
    re.M,
)
# The name itself, and what could put it together.
_ASKS = re.compile(r"TORCH_EXTENSION_NAME|##|%:|\?\?|\\\s*$", re.M)
_INCLUDES = re.compile(r"\b(?:include|import)")  # however it is written: another file may ask
_FORCES = re.compile(r"-(?:include|imacros)")


def without(flags: str) -> str:
    """Flags without the module's name."""
    return _DEFINE.sub("", flags)


def is_nameless(text: str, flags: str, *, folders: bool) -> bool:
    r"""Whether neither a unit nor a header of the user's can ask for the module's name.
    ``folders``: whether there are any of the user's, where headers with the names of common
    ones may be.

    >>> source = "#include <torch/extension.h>\nat::Tensor f();"
    >>> is_nameless(source, "-DTORCH_EXTENSION_NAME=x -O2", folders=True)
    True
    >>> is_nameless("TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {}", "", folders=False)
    False
    """
    own = without_common_includes(text, folders=folders)
    others = without(flags)
    found = (_ASKS.search(own), _INCLUDES.search(own), _ASKS.search(others), _FORCES.search(others))
    return not any(found)


def without_common_includes(text: str, *, folders: bool) -> str:
    """A source without stock's include, and without those of torch's and the standard library's
    where no folder of the user's may have headers of their names."""
    own = text.replace(_STOCKS, "")
    return own if folders else _COMMON.sub("", own)

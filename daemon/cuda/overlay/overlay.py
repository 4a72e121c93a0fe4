"""Lean CUDA preludes: headers that stand in front of torch's own, for nvcc's front ends only.

What costs the front ends most of torch's headers is what a kernel's host code never looks into: the
bodies of some thousand functions, and all that these bodies need. The overlay has torch's headers
without it: bodies of functions are cut out, a few hubs (``native/lean``) are replaced by what their
users see of them, and every operator has a header of its own, included only where its name is
mentioned.

The compiler of the host sees the real headers, so that a declaration that is wrong here is an error
there, or nothing.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
from pathlib import Path

from warmcc.daemon import native
from warmcc.daemon.cuda.overlay import bodies
from warmcc.daemon.pch import lean

STUBS = native.path("lean")
# What the host's prelude includes.
HOST = (
    *lean.TORCH, "ATen/Dispatch.h", "ATen/AccumulateType.h", "ATen/cuda/CUDAContext.h",
    "ATen/cuda/Exceptions.h",
    "c10/cuda/CUDAGuard.h", "c10/cuda/CUDAStream.h", "c10/cuda/CUDAException.h",
)  # fmt: skip
# What the front ends read instead.
PRELUDE = (
    "torch/types.h", "ATen/DeviceGuard.h", "ATen/Dispatch.h", "ATen/TensorIndexing.h",
    "ATen/TensorOperators.h",
    "ATen/core/TensorAccessor.h", "ATen/cuda/CUDAContext.h", "ATen/cuda/Exceptions.h",
    "c10/cuda/CUDACachingAllocator.h", "c10/cuda/CUDAGuard.h",
    "c10/cuda/CUDAStream.h", "c10/cuda/CUDAException.h", "c10/util/Logging.h",
)  # fmt: skip

# Headers that say nothing to a kernel, or that the prelude stands for.
_EMPTY = (
    "ATen/MethodOperators.h", "ATen/Operators.h", "ATen/NativeFunctions.h", "ATen/Functions.h",
    "ATen/ATen.h",
    "ATen/ScalarOps.h", "ATen/core/jit_type.h", "ATen/core/ivalue.h", "ATen/TensorUtils.h",
    "ATen/ExpandUtils.h",
    "torch/library.h", "torch/extension.h", "torch/all.h", "torch/torch.h", "torch/script.h",
    "torch/csrc/autograd/variable.h", "torch/csrc/autograd/generated/variable_factories.h",
)  # fmt: skip
# Those of these that the host's prelude has lose the bodies that nobody needs (``bodies.py``): g++
# would miss the bodies of others,
_LIBRARY = (
    "ATen/*.h",
    "ATen/core/**/*.h",
    "ATen/cuda/*.h",
    "c10/core/**/*.h",
    "c10/cuda/*.h",
    "c10/util/*.h",
)
# and these include something else in place of what they did.
_CUT = {
    "ATen/core/TensorBody.h": ("ATen/MethodOperators.h", "ATen/core/ATen_fwd.h"),
    "ATen/TensorOperators.h": ("ATen/Functions.h", "ATen/ops/empty_like.h"),
    "ATen/TensorIndexing.h": ("ATen/core/List.h", "ATen/core/TensorBody.h"),
}
# What torch/types.h includes, the latter until torch 2.7.
_UNUSED = ("ATen/ATen.h", "ATen/core/dispatch/Dispatcher.h")
_OPERATORS = ("ATen/ops", "torch/factories", "torch/checks")  # a header for each name
_CHECKS = "ATen/TensorUtils.h"  # of arguments, which vision's kernels call
_CHECK = re.compile(r"\b(?:check\w+|Tensor\w*Arg|CheckedFrom)\b")
_API = "torch/csrc/api/include"
_INCLUDED = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"]", re.M)
_BINDS = re.compile(r"\bpy\s*::|\bpybind11\b|\bPYBIND11_\w+")
_BINDS_MORE = re.compile(r"\bpy\s*::|\bpybind11\b|\bPYBIND11_(?!MODULE\b)\w+")
_INCLUDES_PYTHON = re.compile(r"#[ \t]*include[ \t]*[<\"]torch/(?:extension|python)\.h")
_OPERATOR = re.compile(r"\w+(?<!_ops)(?<!_native)(?<!_dispatch)(?<!_meta)\.h")
_FUNCTION = re.compile(
    r"^(?:template *<[^\n]*>\n)?(?:C10_ALWAYS_INLINE |static )*inline (?!constexpr)(?!auto)"
    r"[^;{}#=]*?\(",
    re.M,
)
_ALIAS = re.compile(r"^using (\w+) = [^;]*;", re.M)
_SKIPPED = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])'", re.S)


def write(torch_dir: str, place: Path) -> None:
    """Make the overlay of an installed torch in a new folder. Raises OSError, and ValueError for
    other headers.
    """
    include = Path(torch_dir) / "include"
    shutil.copytree(STUBS, place)
    for name in _EMPTY:
        _put(place, name, "#pragma once\n")
    for name, (before, instead) in _CUT.items():
        _put(
            place,
            name,
            bodies.cut(
                _read(include, name).replace(f"#include <{before}>", f"#include <{instead}>")
            ),
        )
    for name in sorted(os.listdir(include / "ATen/ops")):
        if _OPERATOR.fullmatch(name):
            text = re.sub(
                r"^#include <ATen/(?:ops/\w+|Context|TensorUtils|DeviceGuard)\.h>$",
                "",
                _read(include, f"ATen/ops/{name}"),
                flags=re.M,
            )
            if "ITensorListRef" in text:
                text = text.replace(
                    "#pragma once", "#pragma once\n#include <ATen/core/IListRef.h>", 1
                )
            _put(place, f"ATen/ops/{name}", bodies.cut(_without(text, "namespace symint {")))
    reached = _reached(include)
    for path in sorted(path for pattern in _LIBRARY for path in include.glob(pattern)):
        if (name := str(path.relative_to(include))) not in reached:
            continue
        with contextlib.suppress(ValueError):  # what the scanner cannot read stays torch's own
            whole = _read(include, name)
            if not (place / name).exists() and (text := bodies.cut(whole)) != whole:
                _put(place, name, text)
    types = _read(include, f"{_API}/torch/types.h", _UNUSED)
    _put(
        place,
        "torch/types.h",
        types.replace("#pragma once", "#pragma once\n#include <ATen/core/Tensor.h>", 1),
    )
    _factories(_read(include, "torch/csrc/autograd/generated/variable_factories.h"), place)
    _checks(_read(include, _CHECKS), place)


def mentioned(place: Path, text: str, *, on_host: bool = True) -> list[str]:
    """The headers behind the prelude that declare what a source mentions by name. A module that a
    unit binds itself is the host's matter, unless more of pybind11 is mentioned."""
    names = sorted(set(re.findall(r"[A-Za-z_]\w*", text)))
    there = _operators(str(place))
    found = [f"{folder}/{name}.h" for name in names for folder in _OPERATORS]
    found = [name for name in found if name in there]
    if (_BINDS if on_host else _BINDS_MORE).search(text) and _INCLUDES_PYTHON.search(text):
        found.append("torch/csrc/utils/pybind.h")
    return found


@functools.lru_cache(maxsize=4)
def _operators(place: str) -> frozenset[str]:
    """The headers of an overlay that are included where their name is mentioned. An overlay is
    known by what it was made of, and never changes."""
    return frozenset(
        f"{folder}/{name}" for folder in _OPERATORS for name in os.listdir(f"{place}/{folder}")
    )


def _reached(include: Path) -> set[str]:
    """The headers that the host's prelude may read, under any conditions."""
    found: set[str] = set()
    left = list(HOST)
    while left:
        if (name := left.pop()) in found:
            continue
        path = next(filter(Path.exists, (include / name, include / _API / name)), None)
        if path is not None:
            found.add(name)
            left += _INCLUDED.findall(path.read_text(encoding="utf-8", errors="surrogateescape"))
    return found


def _factories(text: str, place: Path) -> None:
    """torch's own versions of the functions that make tensors: one header for each name."""
    by_name: dict[str, list[str]] = {}
    for match in _FUNCTION.finditer(bodies.cut(text)):
        end = _cut_text_end(match)
        name = re.findall(r"\w+", match.group())[-1]
        by_name.setdefault(name, []).append(end)
    for name, declarations in by_name.items():
        body = "\n".join(declarations)
        aliases = [
            alias[0] for alias in _ALIAS.finditer(text) if re.search(rf"\b{alias[1]}\b", body)
        ]
        _put(
            place,
            f"torch/factories/{name}.h",
            "\n".join(
                ["#pragma once", _needed(body), "namespace torch {", *aliases, body, "}", ""]
            ),
        )


def _checks(text: str, place: Path) -> None:
    """The checks of arguments: one header for each name, which has them all."""
    _put(place, "torch/checks.h", bodies.cut(text))
    for name in set(_CHECK.findall(_SKIPPED.sub("", text))):
        _put(place, f"torch/checks/{name}.h", "#include <torch/checks.h>\n")


def _needed(body: str) -> str:
    """What declarations need beside the prelude: else ``detail`` is at's or c10's."""
    own = "torch/detail/TensorDataContainer.h"
    headers = (
        "ATen/core/LegacyTypeDispatch.h", "ATen/ops/empty.h", "ATen/ops/scalar_tensor.h",
        "ATen/ops/tensor.h", own,
    )  # fmt: skip
    return (
        "".join(f"#include <{name}>\n" for name in headers)
        if "detail::TensorDataContainer" in body
        else ""
    )


def _cut_text_end(match: re.Match[str]) -> str:
    """The declaration that begins with a match in a text without bodies."""
    text = match.string
    return text[match.start() : text.index(";", _closing(text, match.end() - 1)) + 1]


def _read(include: Path, name: str, dropped: tuple[str, ...] = ()) -> str:
    text = (include / name).read_text(encoding="utf-8")
    for other in dropped:
        text = text.replace(f"#include <{other}>", "")
    return text


def _put(place: Path, name: str, text: str) -> None:
    (place / name).parent.mkdir(parents=True, exist_ok=True)
    (place / name).write_text(text, encoding="utf-8")


def _without(text: str, head: str) -> str:
    """A header without the blocks that begin with ``head``."""
    while (at := text.find(head)) >= 0:
        text = text[:at] + text[_closing(text, at + len(head) - 1) :]
    return text


def _closing(text: str, at: int) -> int:
    """Where the bracket that opens at ``at`` is closed, and one further. Raises ValueError."""
    pairs = {"(": ")", "{": "}"}
    opening, closing = text[at], pairs[text[at]]
    depth = 0
    for match in re.compile(rf"{_SKIPPED.pattern}|[{re.escape(opening + closing)}]", re.S).finditer(
        text, at
    ):
        if match.group() in (opening, closing):
            depth += 1 if match.group() == opening else -1
            if depth == 0:
                return match.end()
    raise ValueError("a bracket is not closed")

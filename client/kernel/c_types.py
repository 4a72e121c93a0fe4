"""The types of parameters: how each is passed to a kernel, and which tensors it points to."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

Kind = Literal["pointer", "integer", "float", "bool", "bfloat16", "struct"]

# Name: struct format, size, and the dtypes of tensors whose elements it may be.
_SCALARS: dict[str, tuple[str, tuple[str, ...]]] = {
    "bool": ("?", ("bool",)),
    "char": ("b", ("int8", "uint8")), "signed char": ("b", ("int8",)),
    "unsigned char": ("B", ("uint8",)),
    "short": ("h", ("int16",)), "unsigned short": ("H", ("uint16",)),
    "int": ("i", ("int32",)), "unsigned int": ("I", ("uint32",)),
    "long": ("q", ("int64",)), "unsigned long": ("Q", ("uint64",)),
    "long long": ("q", ("int64",)), "unsigned long long": ("Q", ("uint64",)),
    "__half": ("e", ("float16",)), "float": ("f", ("float32",)), "double": ("d", ("float64",)),
    "__nv_bfloat16": ("H", ("bfloat16",)),
}  # fmt: skip
_ALIASES = {
    "int8_t": "signed char", "uint8_t": "unsigned char", "int16_t": "short",
    "uint16_t": "unsigned short", "int32_t": "int", "uint32_t": "unsigned int", "int64_t": "long",
    "uint64_t": "unsigned long", "size_t": "unsigned long", "ptrdiff_t": "long",
    "intptr_t": "long", "uintptr_t": "unsigned long", "unsigned": "unsigned int", "signed": "int",
    "uint": "unsigned int", "uchar": "unsigned char", "ushort": "unsigned short",
    "half": "__half", "nv_bfloat16": "__nv_bfloat16", "bfloat16": "__nv_bfloat16",
    "__nv_half": "__half", "nv_half": "__half", "_Bool": "bool",
}  # fmt: skip
# What tensors can hold and no parameter is passed by value as: size, and dtypes.
_ELEMENTS: dict[str, tuple[int, tuple[str, ...]]] = {
    "__nv_fp8_e4m3": (1, ("float8_e4m3fn",)), "__nv_fp8_e5m2": (1, ("float8_e5m2",)),
    "__nv_fp8_e8m0": (1, ("float8_e8m0fnu",)),
    "__nv_fp8_storage_t": (1, ("uint8", "float8_e4m3fn", "float8_e5m2")),
    "__nv_fp8x2_e4m3": (2, ("float8_e4m3fn",)), "__nv_fp8x4_e4m3": (4, ("float8_e4m3fn",)),
    "__nv_fp8x2_e5m2": (2, ("float8_e5m2",)), "__nv_fp8x4_e5m2": (4, ("float8_e5m2",)),
    "__half2": (4, ("float16",)), "half2": (4, ("float16",)),
    "__nv_bfloat162": (4, ("bfloat16",)), "nv_bfloat162": (4, ("bfloat16",)),
    "cuComplex": (8, ("complex64",)), "cuFloatComplex": (8, ("complex64",)),
    "cuDoubleComplex": (16, ("complex128",)),
    "cuda::std::complex<float>": (8, ("complex64",)),
    "cuda::std::complex<double>": (16, ("complex128",)),
    "thrust::complex<float>": (8, ("complex64",)), "thrust::complex<double>": (16, ("complex128",)),
}  # fmt: skip
_VECTOR = (  # compiled when it is needed
    r"(char|uchar|short|ushort|int|uint|long|ulong|longlong|ulonglong|float|double)([1-4])"
    r"(?:_(?:16|32)a)?"
)
_WIDE = {"ulong": "unsigned long", "longlong": "long long", "ulonglong": "unsigned long long"}
# Words that say nothing about a type's size
_IGNORED = {
    "const", "volatile", "restrict", "__restrict__", "__restrict", "struct", "class", "enum",
    "typename", "__grid_constant__", "register",
}  # fmt: skip
_ATTRIBUTE = r"\[\[.*?\]\]|\balignas\s*\([^)]*\)"
_SIZES = {"?": 1, "b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "Q": 8, "e": 2, "f": 4,
          "d": 8}  # fmt: skip
_WIDEST = 16  # what one load of the GPU takes
_WORDS = {
    "int", "char", "short", "long", "unsigned", "signed", "float", "double", "bool",
}  # fmt: skip
# torch's names of dtypes as C++ has them, for template arguments.
OF_DTYPES = {
    "torch.float32": "float", "torch.float64": "double", "torch.float16": "__half",
    "torch.bfloat16": "__nv_bfloat16", "torch.int8": "signed char", "torch.uint8": "unsigned char",
    "torch.int16": "short", "torch.uint16": "unsigned short", "torch.int32": "int",
    "torch.uint32": "unsigned int", "torch.int64": "long long",
    "torch.uint64": "unsigned long long", "torch.bool": "bool",
    "torch.float8_e4m3fn": "__nv_fp8_e4m3", "torch.float8_e5m2": "__nv_fp8_e5m2",
}  # fmt: skip


class CType(msgspec.Struct, frozen=True):
    """How a parameter is passed.

    kind     what a caller gives
    format   of Python's ``struct``; a pointer is ``Q``, a struct has none
    size     in bytes; 0: not known
    dtypes   of tensors that a pointer may point to; empty: of all
    element  bytes of what a pointer points to; 0: not known
    const    whether a pointer's target may not be written
    """

    kind: Kind
    format: str
    size: int
    dtypes: tuple[str, ...] = ()
    element: int = 0
    const: bool = False

    @property
    def alignment(self) -> int:
        """The bytes of which a pointer's address is a multiple: ``float3`` has those of ``float``.

        >>> CType("pointer", "Q", 8, (), 12).alignment
        4
        """
        return min(self.element & -self.element, _WIDEST) or 1


def normal(text: str) -> str:
    """A type without what says nothing about its size, and with one space between its words.

    >>> normal("const  float * __restrict__")
    'float*'
    """
    if "[[" in text or "alignas" in text:
        text = re.sub(_ATTRIBUTE, " ", text)
    kept = re.sub(r"\w+", lambda word: " " if word[0] in _IGNORED else word[0], text)
    words = " ".join(kept.split())
    words = re.sub(r"\s*([*&<>,]|::)\s*", r"\1", words)
    return words.removeprefix("::")


def _scalar(name: str) -> str:
    """The usual name of a scalar; other names as they are.

    >>> _scalar("long unsigned int"), _scalar("std::uint8_t")
    ('unsigned long', 'unsigned char')
    """
    name = re.sub(r"^(?:cuda::)?std::(?=\w+$)", "", name)
    name = _ALIASES.get(name, name)
    words = name.split()
    if len(words) > 1 and set(words) <= _WORDS:
        sign = "unsigned " if "unsigned" in words else ""
        if "char" in words:
            return f"{sign or 'signed '}char"
        if "short" in words:
            return f"{sign}short"
        longs = words.count("long")
        if "double" in words:
            return "long double"
        return f"{sign}{' '.join(['long'] * longs) or 'int'}"
    return name


def resolve(text: str, names: dict[str, str]) -> CType:
    """The type that a parameter's text means, where ``names`` are aliases and template arguments.
    Raises ValueError for a type that no kernel can take from a caller."""
    plain = _substituted(normal(text), names)
    if plain.endswith("&"):
        raise ValueError("a reference cannot be passed to a kernel or a C function")
    if plain.endswith("*"):
        target = plain[:-1]
        is_const = _is_const(text)
        if target.endswith("*"):
            return CType("pointer", "Q", 8, (), 8, is_const)
        element, dtypes = _element(target)
        return CType("pointer", "Q", 8, dtypes, element, is_const)
    name = _scalar(plain)
    if name in _SCALARS:
        form, _ = _SCALARS[name]
        kind: Kind = "integer"
        if name == "__nv_bfloat16":
            kind = "bfloat16"
        elif form == "?":
            kind = "bool"
        elif form in "efd":
            kind = "float"
        return CType(kind, form, _SIZES[form])
    element, _ = _element(plain)
    return CType("struct", "", element)


def _substituted(text: str, names: dict[str, str]) -> str:
    for _ in range(8):  # an alias of an alias, and no circle
        found = re.sub(r"(?<![:\w])\w+\b", lambda word: normal(names.get(word[0], word[0])), text)
        if found == text:
            break
        text = found
    return text


def _is_const(text: str) -> bool:
    """Whether the target of a pointer is const: ``const float*``, ``float const*``."""
    return re.search(r"\bconst\b", text.rpartition("*")[0] if "*" in text else text) is not None


def _element(name: str) -> tuple[int, tuple[str, ...]]:
    """Size of what a pointer points to, and the dtypes that it may be; 0 and none: any."""
    name = _scalar(name)
    if name in _SCALARS:
        form, dtypes = _SCALARS[name]
        return _SIZES[form], dtypes
    if name in _ELEMENTS:
        return _ELEMENTS[name]
    if match := re.fullmatch(_VECTOR, name):
        base = _scalar(_WIDE.get(match[1], match[1]))
        form, dtypes = _SCALARS[base]
        lanes = int(match[2])
        if lanes == 2 and form in "fd":
            dtypes = (*dtypes, "complex64" if form == "f" else "complex128")
        return _SIZES[form] * lanes, dtypes
    return 0, ()

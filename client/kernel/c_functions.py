"""``warmcc.cfunctions``: plain C or C++ as Python functions, without torch's headers.

Called through ctypes, which lets other threads run meanwhile.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import tempfile
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

from warmcc.client.kernel import compiling, requests, signature
from warmcc.client.kernel.arguments import Arguments, text_of
from warmcc.client.kernel.signature import Parameter, Signature, SignatureError

if TYPE_CHECKING:
    from warmcc.client.kernel.compiling import Compiled

_C_TYPES: dict[str, Any] = {
    "?": ctypes.c_bool, "b": ctypes.c_int8, "B": ctypes.c_uint8, "h": ctypes.c_int16,
    "H": ctypes.c_uint16, "i": ctypes.c_int32, "I": ctypes.c_uint32, "q": ctypes.c_int64,
    "Q": ctypes.c_uint64, "f": ctypes.c_float, "d": ctypes.c_double,
}  # fmt: skip


def cfunctions(
    source: str | os.PathLike[str], signatures: str | Iterable[str], *,
    language: Literal["c", "c++"] = "c", options: Iterable[str] = (),
    include_dirs: Iterable[str | os.PathLike[str]] = (), strided: Iterable[str] = (),
) -> SimpleNamespace:  # fmt: skip
    """Compile C or C++ with ``-O2`` and ``options``, and call its functions.

    ``source`` is the text, or a ``pathlib.Path``. ``signatures`` are declarations
    (``"double dot(const double* x, const double* y, long n)"``), or names of functions that the
    source defines. In C++ they have to be ``extern "C"``. Linker options (``-lm``) go into
    ``options``. ``strided`` names pointers whose tensors need not be contiguous.

    Returns an object with the functions as attributes. Each takes tensors in the host's memory,
    numpy arrays, bytes, addresses and numbers, which are checked: names, dtypes, contiguity,
    ranges. Raises CompileError, SignatureError (a ValueError), RequestError, TypeError.
    """
    text, path = requests.text(source)
    if language not in ("c", "c++"):
        raise ValueError(f"language is 'c' or 'c++', not {language!r}")
    wanted = [signatures] if isinstance(signatures, str) else list(signatures)
    found = [_signature(one, text) for one in wanted]
    if not found:
        raise SignatureError("name at least one function")
    request = requests.request(
        text, path, found[0].name, "cc" if language == "c" else "c++", options=options,
        include_dirs=include_dirs, names=[],
    )  # fmt: skip
    library = _loaded(compiling.compiled(request))
    strides = frozenset(strided)
    return SimpleNamespace(**{one.name: function(library, one, strides, language) for one in found})


def _signature(wanted: str, text: str) -> Signature:
    """Raises SignatureError."""
    if "(" in wanted:
        return signature.declared(wanted).bound({})
    return signature.defined(text, wanted).bound({})


def _loaded(compiled: Compiled) -> ctypes.CDLL:
    """The library. Raises OSError."""
    if compiled.path:
        return ctypes.CDLL(compiled.path)
    descriptor, place = tempfile.mkstemp(prefix="warmcc-", suffix=".so")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(compiled.image)
        return ctypes.CDLL(place)
    finally:
        os.unlink(place)


def function(
    library: ctypes.CDLL, found: Signature, strided: frozenset[str], language: str
) -> Callable[..., Any]:
    """One function to call. Raises SignatureError."""
    try:
        native = getattr(library, found.name)
    except AttributeError:
        hint = ' (in C++, declare it extern "C")' if language == "c++" else ""
        raise SignatureError(f"what was compiled has no function {found.name!r}{hint}") from None
    native.restype = _result(found)
    checks = Arguments(found, -1, strided)
    takes = [_converter(index, one, checks) for index, one in enumerate(found.parameters)]
    native.argtypes = [_argument(found, one) for one in found.parameters]

    def call(*args: Any) -> Any:
        if len(args) != len(takes):
            raise checks.count(args)
        return native(*[take(value) for take, value in zip(takes, args, strict=True)])

    call.__name__ = call.__qualname__ = found.name
    call.__doc__ = f"{found.result} {found}"
    return call


def _result(found: Signature) -> Any:
    """Raises SignatureError."""
    if found.result in ("void", ""):
        return None
    kind = Signature("", (Parameter("", found.result),), aliases=found.aliases).bound({})
    result = kind.parameters[0].type
    assert result is not None
    if result.kind == "pointer":
        return ctypes.c_void_p
    if result.format not in _C_TYPES:
        raise SignatureError(f"{found.name} returns {found.result}, which Python cannot take")
    return _C_TYPES[result.format]


def _argument(found: Signature, one: Parameter) -> Any:
    """Raises SignatureError."""
    assert one.type is not None
    if one.type.kind == "pointer":
        return ctypes.c_void_p
    if one.type.format not in _C_TYPES or one.type.kind in ("struct", "bfloat16"):
        raise SignatureError(f"`{one.text}` of {found}: pass a pointer to it instead")
    return _C_TYPES[one.type.format]


def _converter(index: int, one: Parameter, checks: Arguments) -> Callable[[Any], Any]:
    """What makes of one argument what ctypes passes. It raises TypeError, ValueError."""
    kind = one.type
    assert kind is not None
    if kind.kind == "pointer":
        return lambda value: _address(index, one, checks, value)
    convert: Callable[[int, Any], Any] = {
        "integer": checks.integer, "bool": checks.truth,
    }.get(kind.kind, checks.number)  # fmt: skip
    pack = struct.Struct(kind.format).pack

    def number(value: Any) -> Any:
        found = convert(index, value)
        try:
            pack(found)
        except (struct.error, OverflowError):
            raise OverflowError(f"{checks.at(index)}: {found} does not fit") from None
        return found

    return number


def _address(index: int, one: Parameter, checks: Arguments, value: Any) -> Any:
    """What ctypes passes as a pointer."""
    kind = one.type
    assert kind is not None
    if hasattr(value, "__array_interface__") and not hasattr(value, "data_ptr"):
        return _of_array(index, one, checks, value)
    if isinstance(value, (ctypes.Array, ctypes.Structure)):
        return ctypes.addressof(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _of_buffer(index, one, checks, value)
    return checks.pointer(index, value)


def _of_array(index: int, one: Parameter, checks: Arguments, value: Any) -> int:
    """The address of a numpy array."""
    kind = one.type
    assert kind is not None
    address, is_readonly = value.__array_interface__["data"]
    dtype, shape = str(value.dtype), list(value.shape)
    what = f"a numpy array of {dtype} of shape {shape}"
    if kind.dtypes and dtype not in kind.dtypes:
        wanted = " or ".join(kind.dtypes)
        raise TypeError(f"{checks.at(index)}: {wanted} is expected, and {what} was given")
    if one.name not in checks.strided and not value.flags.c_contiguous:
        raise ValueError(
            f"{checks.at(index)}: {what} is not contiguous; pass numpy.ascontiguousarray(...)"
        )
    if is_readonly and not kind.const:
        raise ValueError(f"{checks.at(index)}: {what} may not be written, and this pointer may")
    return int(address)


def _of_buffer(index: int, one: Parameter, checks: Arguments, value: Any) -> Any:
    """The address of bytes."""
    kind = one.type
    assert kind is not None
    view = memoryview(value)
    if kind.element > 1:
        raise TypeError(
            f"{checks.at(index)}: {text_of(value)} holds bytes, which are not what it points to"
        )
    if view.readonly:
        if not kind.const:
            raise ValueError(
                f"{checks.at(index)}: {text_of(value)} may not be written, and this pointer may"
            )
        return ctypes.cast(ctypes.c_char_p(bytes(value)), ctypes.c_void_p)
    with contextlib.suppress(TypeError):
        return (ctypes.c_char * view.nbytes).from_buffer(value)
    raise ValueError(f"{checks.at(index)}: {text_of(value)} is not contiguous")

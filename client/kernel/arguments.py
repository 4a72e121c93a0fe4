"""Check the arguments of one call against a signature, and turn each into what is passed.

The launcher (``launcher.py``) tells usual arguments by itself, in a few hundred nanoseconds; all
others come here, and are either good in another way (a DLPack object, a number of numpy's) or one
clear error.
"""

from __future__ import annotations

import ctypes
import operator
import struct
import sys
from typing import Any

from warmcc.client.kernel.c_types import CType
from warmcc.client.kernel.signature import Parameter, Signature

_TRACED = ("FakeTensor", "FunctionalTensor")
_LIMIT = 1 << 64


def text_of(value: object) -> str:
    """What a value is, for an error."""
    shape, dtype, device = (getattr(value, name, None) for name in ("shape", "dtype", "device"))
    if shape is not None and dtype is not None and device is not None:
        kind = str(dtype).removeprefix("torch.")
        return f"a {kind} tensor of shape {list(shape)} on {device}"
    shown = repr(value)
    return f"{type(value).__name__} {shown if len(shown) <= 40 else shown[:37] + '...'}"


class Arguments:
    """Checks for one signature on one device; -1: of the host.

    ``strided`` names the parameters whose tensors need not be contiguous.
    """

    def __init__(self, signature: Signature, device: int, strided: frozenset[str]) -> None:
        self._signature = signature
        self._device = device
        self.strided = strided

    def count(self, given: tuple[object, ...]) -> TypeError:
        """The error for a wrong number of arguments."""
        wanted = len(self._signature.parameters)
        names = ", ".join(one.text for one in self._signature.parameters)
        return TypeError(
            f"{self._signature.name}() takes {wanted} argument{'s' * (wanted != 1)} ({names}), "
            f"and {len(given)} {'was' if len(given) == 1 else 'were'} given"
        )

    def at(self, index: int) -> str:
        """Which argument is meant, for an error."""
        parameters = self._signature.parameters
        return (
            f"{self._signature.name}(): argument {index + 1} of {len(parameters)}, "
            f"`{parameters[index].text}`"
        )

    def _of(self, index: int) -> tuple[Parameter, CType]:
        parameter = self._signature.parameters[index]
        assert parameter.type is not None
        return parameter, parameter.type

    # ------------------------------------------------------------------ pointers

    def pointer(self, index: int, value: Any) -> int:
        """The address that a pointer gets. Raises TypeError, ValueError."""
        parameter, kind = self._of(index)
        if value is None:
            return 0
        if type(value) is int:
            if not 0 <= value < _LIMIT:
                raise ValueError(f"{self.at(index)}: {value} is no address")
            return value
        tensor = self._tensor(index, value)
        name = parameter.name
        self._check_place(index, tensor, name)
        self._check_dtype(index, tensor, kind, name)
        if parameter.name not in self.strided and not tensor.is_contiguous():
            raise ValueError(
                f"{self.at(index)}: {text_of(tensor)} is not contiguous (strides "
                f'{list(tensor.stride())}); pass {name}.contiguous(), or say strided=("{name}",) '
                "where the kernel knows the strides"
            )
        self._check_memory(index, tensor)
        address: int = tensor.data_ptr()
        if address % kind.alignment and tensor.numel():
            raise ValueError(
                f"{self.at(index)}: {text_of(tensor)} begins at an address that is no multiple "
                f"of {kind.alignment} bytes; pass {name}.clone()"
            )
        return address

    def _tensor(self, index: int, value: Any) -> Any:
        """A tensor with the memory of a value, without a copy. Raises TypeError."""
        if self._device < 0 and "torch" not in sys.modules and not hasattr(value, "__dlpack__"):
            raise self._no_tensor(index, value)  # a C function may be called without torch
        import torch

        if isinstance(value, torch.Tensor):
            if type(value).__name__ in _TRACED:
                raise TypeError(
                    f"{self.at(index)}: a tensor that is only traced has no memory; register the "
                    "kernel as an operator (as_torch_op) to use it under torch.compile"
                )
            return value
        try:
            if hasattr(value, "__dlpack__"):
                return torch.utils.dlpack.from_dlpack(value)
            if hasattr(value, "__cuda_array_interface__"):
                return torch.as_tensor(value, device=torch.device("cuda", self._device))
        except Exception as error:
            raise TypeError(f"{self.at(index)}: {text_of(value)}: {error}") from error
        raise self._no_tensor(index, value)

    def _no_tensor(self, index: int, value: object) -> TypeError:
        return TypeError(
            f"{self.at(index)}: a tensor is expected (torch's, or of DLPack or "
            f"__cuda_array_interface__), an address, or None; {text_of(value)} was given"
        )

    def _check_place(self, index: int, tensor: Any, name: str) -> None:
        if str(tensor.layout) != "torch.strided":
            raise TypeError(f"{self.at(index)}: {text_of(tensor)} is {tensor.layout}, not dense")
        if self._device < 0:
            if tensor.device.type != "cpu":
                raise ValueError(
                    f"{self.at(index)}: {text_of(tensor)} is not in the host's memory; pass "
                    f"{name}.cpu()"
                )
        elif tensor.device.type != "cuda":
            raise ValueError(
                f"{self.at(index)}: {text_of(tensor)} is not on the GPU; pass {name}.cuda()"
            )
        elif tensor.device.index != self._device:
            raise ValueError(
                f"{self.at(index)}: {text_of(tensor)}, but the current device is cuda:"
                f"{self._device}; call it in `with torch.cuda.device({tensor.device.index}):`, or "
                f'pass {name}.to("cuda:{self._device}")'
            )

    def _check_dtype(self, index: int, tensor: Any, kind: CType, name: str) -> None:
        dtype = str(tensor.dtype).removeprefix("torch.")
        if kind.dtypes and dtype not in kind.dtypes:
            wanted = " or ".join(kind.dtypes)
            raise TypeError(
                f"{self.at(index)}: {wanted} is expected, and {text_of(tensor)} was given; pass "
                f"{name}.to(torch.{kind.dtypes[0]})"
            )
        if tensor.is_conj() or tensor.is_neg():
            raise ValueError(
                f"{self.at(index)}: {text_of(tensor)} is conjugated or negated only when it is "
                f"read; pass {name}.resolve_conj().resolve_neg()"
            )

    def _check_memory(self, index: int, tensor: Any) -> None:
        if not tensor.numel():
            return
        extent = sum(
            (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        )
        needed = (tensor.storage_offset() + extent + 1) * tensor.element_size()
        there = tensor.untyped_storage().nbytes()
        if there < needed:
            raise ValueError(
                f"{self.at(index)}: {text_of(tensor)} needs {needed} bytes, and its storage has "
                f"{there}: its memory was freed"
            )

    # ------------------------------------------------------------------ numbers and structures

    def _refuse_tensor(self, index: int, value: object, wanted: str) -> None:
        if hasattr(value, "data_ptr") or hasattr(value, "__cuda_array_interface__"):
            name = self._signature.parameters[index].name
            raise TypeError(
                f"{self.at(index)}: {wanted} is expected, and {text_of(value)} was given; pass "
                f"{name}.item(), which waits for the GPU"
            )

    def integer(self, index: int, value: Any) -> int:
        """The number for an integer. Raises TypeError."""
        self._refuse_tensor(index, value, "a whole number")
        try:
            return operator.index(value)
        except TypeError:
            raise TypeError(
                f"{self.at(index)}: a whole number is expected, and {text_of(value)} was given"
            ) from None

    def number(self, index: int, value: Any) -> float:
        """The number for a floating-point type. Raises TypeError."""
        self._refuse_tensor(index, value, "a number")
        if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
            if not hasattr(value, "__index__"):
                raise TypeError(
                    f"{self.at(index)}: a number is expected, and {text_of(value)} was given"
                )
            value = operator.index(value)
        return float(value)

    def truth(self, index: int, value: Any) -> bool:
        """The value for a bool. Raises TypeError."""
        self._refuse_tensor(index, value, "True or False")
        if isinstance(value, float) or not (hasattr(value, "__index__") or _is_bool(value)):
            raise TypeError(
                f"{self.at(index)}: True or False is expected, and {text_of(value)} was given"
            )
        return bool(value)

    def bfloat16(self, index: int, value: Any) -> int:
        """The bits of a number as bfloat16, rounded to nearest, ties to even."""
        number = self.number(index, value)
        if number != number:
            return 0x7FC0
        try:
            (bits,) = struct.unpack("<I", struct.pack("<f", number))
        except OverflowError:
            bits = 0x7F800000 if number > 0 else 0xFF800000
        return int(bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF

    def structure(self, index: int, value: Any, size: int) -> bytes:
        """The bytes of a structure that is passed by value. Raises TypeError, ValueError."""
        try:
            data = bytes(memoryview(value).cast("B"))
        except TypeError:
            try:
                data = ctypes.string_at(ctypes.addressof(value), ctypes.sizeof(value))
            except TypeError:
                raise TypeError(
                    f"{self.at(index)}: the bytes of the structure are expected (bytes, "
                    f"ctypes.Structure, numpy.void), and {text_of(value)} was given"
                ) from None
        if len(data) != size:
            raise ValueError(
                f"{self.at(index)}: {size} bytes are expected, and {len(data)} were given"
            )
        return data

    def out_of_range(self, given: tuple[Any, ...]) -> Exception:
        """The error for the number that its type cannot hold."""
        for index, (parameter, value) in enumerate(
            zip(self._signature.parameters, given, strict=True)
        ):
            kind = parameter.type
            if kind is None or kind.kind not in ("integer", "float"):
                continue
            try:
                struct.pack(kind.format, value)
            except (struct.error, OverflowError):
                return OverflowError(f"{self.at(index)}: {value} does not fit")
        return OverflowError(
            f"{self._signature.name}(): the grid, block or shared memory is out of range"
        )


def _is_bool(value: object) -> bool:
    return type(value).__name__ in ("bool", "bool_")

"""What a launch is given besides arguments: grids, blocks and streams, in their usual forms."""

from __future__ import annotations

import operator
from typing import Any


def dims(value: Any, what: str) -> tuple[int, int, int]:
    """A grid or a block as three numbers. Raises TypeError, ValueError."""
    if type(value) is tuple and len(value) == 3:
        x, y, z = value
        if type(x) is type(y) is type(z) is int and x >= 0 and y >= 0 and z >= 0:
            return value
    if value is None:
        raise TypeError(f"{what} is not set: pass {what}=, or name it in warmcc.kernel")
    try:
        words = value if isinstance(value, (tuple, list)) else (value,)
        numbers = [operator.index(word) for word in words]
    except TypeError:
        raise TypeError(f"{what} is a whole number, or up to three, not {value!r}") from None
    if not 1 <= len(numbers) <= 3 or any(number < 0 for number in numbers):
        raise ValueError(f"{what} is a whole number, or up to three, not {value!r}")
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


def stream_handle(stream: Any) -> int:
    """The address of a stream: torch's, CuPy's, of ``__cuda_stream__``, or a number.
    Raises TypeError."""
    for name in ("cuda_stream", "ptr"):
        if isinstance(found := getattr(stream, name, None), int):
            return found
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    if type(stream) is int:
        return stream
    raise TypeError(f"not a CUDA stream: {stream!r}")

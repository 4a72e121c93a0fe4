"""Messages between the evaluator and the process of a submission, which may send anything.

A message is two lengths, a header in JSON and the bytes of tensors. Nothing of it is executed, and
no length is believed beyond a limit that the reader sets.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import select
import struct
import time
from typing import Any

import torch

HEADER = 64 << 10
_LENGTHS = struct.Struct(">IQ")
_TYPES = (
    torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64,
    torch.bool,
)  # fmt: skip
_DTYPES = {str(one)[6:]: one for one in _TYPES}


class Ended(Exception):
    """The other side has closed the pipe."""


class TooLate(Exception):
    """The time limit is over."""


class Nonsense(Exception):
    """The other side sent what is no message."""


class Pipe:
    """Both directions. ``deadline`` is in terms of ``time.monotonic``."""

    def __init__(self, read: int, write: int, deadline: float = math.inf) -> None:
        self._read, self._write, self._deadline = read, write, deadline
        os.set_blocking(read, False)
        os.set_blocking(write, False)

    def send(self, header: dict[str, Any], tensors: list[torch.Tensor] | None = None) -> None:
        """Raises Ended, TooLate."""
        given = [one.detach().cpu().contiguous() for one in tensors or []]
        shapes = [[str(one.dtype)[6:], *one.shape] for one in given]
        head = json.dumps({**header, "tensors": shapes}).encode()
        payload = b"".join(ctypes.string_at(one.data_ptr(), one.nbytes) for one in given)
        left = memoryview(_LENGTHS.pack(len(head), len(payload)) + head + payload)
        while left:
            self._wait(self._write, select.POLLOUT)
            try:
                left = left[os.write(self._write, left[: 1 << 20]) :]
            except BlockingIOError:
                continue
            except OSError:
                raise Ended from None

    def receive(self, limit: int) -> tuple[dict[str, Any], list[torch.Tensor]]:
        """A header, and tensors of at most ``limit`` bytes together.
        Raises Ended, TooLate, Nonsense."""
        head, payload = _LENGTHS.unpack(self._take(_LENGTHS.size))
        if head > HEADER or payload > limit:
            raise Nonsense(f"a message of {head} and {payload} bytes")
        try:
            header = json.loads(self._take(head))
            shapes = header["tensors"]
            return header, list(_tensors(shapes, self._take(payload)))
        except (ValueError, KeyError, TypeError, RecursionError, RuntimeError, OverflowError):
            raise Nonsense("a message that cannot be read") from None

    def _take(self, size: int) -> bytearray:
        found = bytearray()
        while len(found) < size:
            self._wait(self._read, select.POLLIN)
            try:
                part = os.read(self._read, min(size - len(found), 1 << 20))
            except BlockingIOError:
                continue
            if not part:
                raise Ended
            found += part
        return found

    def _wait(self, descriptor: int, event: int) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        left = self._deadline - time.monotonic()
        if left <= 0 or not poll.poll(None if left == math.inf else left * 1000):
            raise TooLate


def _tensors(shapes: list[list[Any]], data: bytearray) -> Any:
    """Raises ValueError, KeyError, TypeError, RuntimeError."""
    at = 0
    for name, *shape in shapes:
        dtype = _DTYPES[name]
        if not all(isinstance(one, int) and one >= 0 for one in shape):
            raise ValueError
        count = math.prod(shape)
        if at + count * dtype.itemsize > len(data):
            raise ValueError
        if count == 0:
            yield torch.empty(shape, dtype=dtype)
        else:
            yield torch.frombuffer(data, dtype=dtype, count=count, offset=at).reshape(shape)
        at += count * dtype.itemsize

"""The launcher of a kernel: Python code made for its signature, so that a call costs little.

A launch is one packing of numbers into a prepared piece of memory (the driver's CUlaunchConfig and
the arguments), and one call of the driver. Each call takes such a piece out of a pool and puts it
back, so that threads do not share one. A kernel that is launched again and again does the usual
call in C (``native.py``).
"""

from __future__ import annotations

import ctypes
import itertools
import struct
from collections.abc import Callable
from typing import Any

import msgspec

from warmcc.client.kernel.arguments import Arguments
from warmcc.client.kernel.c_types import CType
from warmcc.client.kernel.launch_words import dims
from warmcc.client.kernel.signature import Signature, SignatureError

# CUlaunchConfig: grid, block, dynamic shared memory, stream, attributes and how many
_CONFIG = "7I4xQQI4x"
_CONFIG_SIZE = 56
# What no GPU address is below; a tensor that was freed has an offset for its address.
LOWEST = 1 << 40
Launch = Callable[..., None]


class Handle(msgspec.Struct):
    """A kernel that is loaded: what the driver calls it, and its call."""

    kernel: ctypes.c_void_p
    call: Callable[..., int]
    failed: Callable[..., None]  # raises, or makes the call possible


def sized(signature: Signature, sizes: list[int] | None) -> list[int]:
    """The bytes of each parameter, compared with those that the compiler laid out.
    Raises SignatureError where the source was not read as it is."""
    found = []
    for index, one in enumerate(signature.parameters):
        kind = one.type
        assert kind is not None
        known = sizes[index] if sizes is not None and index < len(sizes) else kind.size
        if not known:
            raise SignatureError(
                f"{signature.name}: the size of `{one.text}` is not known: the driver tells it "
                "from CUDA 12.4 on; pass a pointer instead"
            )
        if kind.kind != "struct" and known != kind.size:
            raise SignatureError(_unlike(signature, f"`{one.text}` has {known} bytes there"))
        found.append(known)
    if sizes is not None and len(sizes) != len(found):
        raise SignatureError(_unlike(signature, f"it has {len(sizes)} parameters there"))
    return found


def _unlike(signature: Signature, how: str) -> str:
    return (
        f"{signature} was read from the source, but not so compiled: {how}; say what it takes "
        'with signature="void name(...)"'
    )


def _room(size: int) -> int:
    """The bytes that an argument takes: the next one begins at a multiple of 8."""
    return -(-size // 8) * 8


def offsets(sizes: list[int]) -> list[int]:
    """Where each argument begins in their memory.

    >>> offsets([8, 4, 12, 1])
    [0, 8, 16, 32]
    """
    return list(itertools.accumulate(map(_room, sizes), initial=0))[:-1]


def make(
    signature: Signature, sizes: list[int], checks: Arguments, handle: Handle, device: int,
    strided: frozenset[str],
) -> Launch:  # fmt: skip
    """The function ``(args, grid, block, shared, stream, attributes, count)``."""
    form, lines, packed = _CONFIG, [], []
    names = [f"a{index}" for index in range(len(sizes))]
    known: dict[str, Any] = {"plain": plain()}
    for index, (one, size) in enumerate(zip(signature.parameters, sizes, strict=True)):
        kind = one.type
        assert kind is not None
        form += (f"{size}s" if kind.kind == "struct" else kind.format) + f"{_room(size) - size}x"
        lines += _lines(index, kind, size, one.name in strided, known)
        packed.append(f"p{index}" if kind.kind == "pointer" else f"v{index}")
    pool: list[tuple[Any, ...]] = []
    slots, pack = offsets(sizes), struct.Struct(f"={form}")

    def piece() -> tuple[Any, ...]:
        memory = ctypes.create_string_buffer(pack.size)
        base = ctypes.addressof(memory)
        pointers = (ctypes.c_void_p * len(slots))(*(base + _CONFIG_SIZE + slot for slot in slots))
        return memory, ctypes.c_void_p(base), pointers

    known |= {
        "pool": pool, "piece": piece, "pack": pack.pack_into, "checks": checks,
        "pointer": checks.pointer, "integer": checks.integer, "number": checks.number,
        "truth": checks.truth, "bfloat16": checks.bfloat16, "structure": checks.structure,
        "call": handle.call, "kernel": handle.kernel, "failed": handle.failed, "device": device,
        "dims": dims,
        "Wrong": (struct.error, OverflowError),
    }  # fmt: skip
    text = _TEMPLATE.format(
        names="".join(f"{name}, " for name in names) or "()",
        lines="".join(f"    {line}\n" for line in lines),
        packed="".join(f", {name}" for name in packed),
        values="".join(f"{name}, " for name in packed),
    )
    exec(compile(text, f"<launcher of {signature.name}>", "exec"), known)
    launch: Launch = known["launch"]
    return launch


_TEMPLATE = """\
def launch(args, grid, block, shared, stream, attributes, count):
    gx, gy, gz = (grid, 1, 1) if type(grid) is int else dims(grid, "grid")
    bx, by, bz = (block, 1, 1) if type(block) is int else dims(block, "block")
    try:
        {names} = args
    except ValueError:
        raise checks.count(args) from None
{lines}    if not (gx and gy and gz):
        return
    try:
        one = pool.pop()
    except IndexError:
        one = piece()
    try:
        pack(one[0], 0, gx, gy, gz, bx, by, bz, shared, stream, attributes, count{packed})
        code = call(one[1], kernel, one[2], None)
        if code:
            failed(code, gx, gy, gz, bx, by, bz, shared, count)
            code = call(one[1], kernel, one[2], None)
            if code:
                failed(code, gx, gy, gz, bx, by, bz, shared, count, last=True)
    except Wrong:
        raise checks.out_of_range(({values})) from None
    finally:
        pool.append(one)
"""


def _lines(index: int, kind: CType, size: int, strided: bool, known: dict[str, Any]) -> list[str]:
    """The lines that check one argument, and make what is packed of it."""
    if kind.kind == "pointer":
        return _pointer_lines(index, kind, strided, known)
    made = {
        "integer": f"v{index} = a{index} if type(a{index}) is int else integer({index}, a{index})",
        "float": f"v{index} = a{index} if type(a{index}) is float else number({index}, a{index})",
        "bool": f"v{index} = a{index} if type(a{index}) is bool else truth({index}, a{index})",
        "bfloat16": f"v{index} = bfloat16({index}, a{index})",
        "struct": f"v{index} = structure({index}, a{index}, {size})",
    }
    return [made[kind.kind]]


def plain() -> tuple[type, type]:
    """The classes whose tensors may be passed as they are."""
    import torch

    return torch.Tensor, torch.nn.Parameter


def dtypes_of(kind: CType) -> tuple[Any, ...]:
    """The dtypes of the tensors that a pointer may point to; an older torch may lack one."""
    import torch

    return tuple(getattr(torch, dtype) for dtype in kind.dtypes if hasattr(torch, dtype))


def may_be_complex(kind: CType) -> bool:
    """Whether a tensor that fits may be conjugated only when it is read."""
    return not kind.dtypes or any("complex" in dtype for dtype in kind.dtypes)


def _pointer_lines(index: int, kind: CType, strided: bool, known: dict[str, Any]) -> list[str]:
    name = f"a{index}"
    wrong = [f"{name}.get_device() != device", f"p{index} < {LOWEST}", f"{name}.is_neg()"]
    dtypes = dtypes_of(kind)
    if len(dtypes) == 1:
        known[f"d{index}"] = dtypes[0]
        wrong.insert(0, f"{name}.dtype is not d{index}")
    elif kind.dtypes:
        known[f"d{index}"] = dtypes
        wrong.insert(0, f"{name}.dtype not in d{index}")
    if not strided:
        wrong.append(f"not {name}.is_contiguous()")
    if kind.alignment > 1:
        wrong.append(f"p{index} & {kind.alignment - 1}")
    if may_be_complex(kind):
        wrong.append(f"{name}.is_conj()")
    return [
        f"if type({name}) in plain:",
        f"    p{index} = {name}.data_ptr()",
        f"    if {' or '.join(wrong)}:",
        f"        p{index} = pointer({index}, {name})",
        "else:",
        f"    p{index} = pointer({index}, {name})",
    ]

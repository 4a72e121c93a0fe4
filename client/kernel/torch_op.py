"""A kernel as an operator of torch, with its schema from the signature: torch.compile knows it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from warmcc.client.kernel.signature import Signature, SignatureError

if TYPE_CHECKING:
    from warmcc.client.kernel.kernel import CudaKernel

_NAME = re.compile(r"([A-Za-z_]\w*)::([A-Za-z_]\w*)")
_TYPES = {"integer": "int", "float": "float", "bfloat16": "float", "bool": "bool"}
# Operators that this process has registered: schema, and whose turn it is. One that is registered
# again, as in a notebook, gets another kernel.
_known: dict[str, tuple[str, list[CudaKernel]]] = {}


def schema(signature: Signature, mutates: Iterable[str] | None) -> str:
    """The schema's parameters and result.

    Raises SignatureError for what no operator can take, and for names that are none.
    """
    pointers = {
        one.name: one.type for one in signature.parameters
        if one.type is not None and one.type.kind == "pointer"
    }  # fmt: skip
    if mutates is None:
        written = {name for name, kind in pointers.items() if not kind.const}
    else:
        written = {mutates} if isinstance(mutates, str) else set(mutates)
    for name in sorted(written):
        if name not in pointers:
            raise SignatureError(f"mutates: {signature} has no pointer {name!r}")
        if pointers[name].const:
            raise SignatureError(f"mutates: {name} of {signature} points to what is const")
    parts = []
    for number, one in enumerate(signature.parameters):
        assert one.type is not None
        if one.type.kind == "struct":
            raise SignatureError(f"`{one.text}` of {signature}: no operator takes a structure")
        name = "self_" if one.name == "self" else one.name
        if one.type.kind == "pointer":
            mark = f"(a{number}!)" if one.name in written else ""
            parts.append(f"Tensor{mark} {name}")
        else:
            parts.append(f"{_TYPES[one.type.kind]} {name}")
    return f"({', '.join(parts)}) -> ()"


def register(kernel: CudaKernel, name: str, mutates: Iterable[str] | None) -> Any:
    """The operator. Raises SignatureError, ValueError, RuntimeError."""
    import torch

    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"an operator's name is like 'namespace::name', not {name!r}")
    text = schema(kernel.signature, mutates)
    operator = getattr(torch.ops, match[1])
    if name in _known:
        known, turn = _known[name]
        if known != text:
            raise ValueError(
                f"{name} is registered with {known}, and this kernel has {text}; take another name"
            )
        turn[0] = kernel
        return getattr(operator, match[2])
    turn = [kernel]

    def launch(*args: Any) -> None:
        # As torch.ops guards no device, the tensors' is made the current one.
        devices = {one.device for one in args if isinstance(one, torch.Tensor) and one.is_cuda}
        if len(devices) == 1:
            with torch.cuda.device(next(iter(devices))):
                turn[0](*args)
        else:
            turn[0](*args)

    torch.library.define(name, text)
    torch.library.impl(name, "cuda")(launch)
    torch.library.register_fake(name)(lambda *_args: None)
    _known[name] = (text, turn)
    return getattr(operator, match[2])

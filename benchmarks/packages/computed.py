"""For the scripts of ``runs/``: a tensor's digest, in a line of its own."""

from __future__ import annotations

import hashlib

import torch


def computed(name: str, tensor: torch.Tensor) -> None:
    """Print the digest of the tensor's bytes. Raises ValueError where it holds no numbers, or the
    same one everywhere: such a result would not tell one library from another."""
    here = tensor.detach().cpu().contiguous()
    if here.numel() < 2 or bool(torch.isnan(here.double()).any()) or len(here.unique()) < 2:
        raise ValueError(f"{name} is {here}")
    digest = hashlib.sha256(bytes(here.view(-1).view(torch.uint8).tolist())).hexdigest()
    print("computed", name, tuple(here.shape), here.dtype, digest[:16])

"""Compare each variant of a package with attention in double precision, on a GPU.

    warmcc prebuild examples/fa_variants/spec.toml --output dist
    python examples/fa_variants/check.py dist/fa_variants

Exit code 1 when a variant differs by more than the tolerance: half a percent of the output's size
at each element, and never less than 0.002, as the outputs are halves.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import torch

ABSOLUTE, RELATIVE = 2e-3, 5e-3
# Batch, heads, queries and keys: whole tiles, parts of tiles, and one key or query alone.
SHAPES = [(2, 3, 128, 128), (1, 2, 200, 200), (2, 1, 77, 77), (1, 1, 1, 1)]
OTHER_KEYS = [(1, 2, 50, 131), (1, 1, 1, 300)]  # not for causal variants


def imported(package: str) -> Any:
    """A package by its folder, or by its name."""
    folder, name = os.path.split(os.path.abspath(package))
    if os.path.isdir(package):
        sys.path.insert(0, folder)
        return importlib.import_module(name)
    return importlib.import_module(package)


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> torch.Tensor:
    """Attention in double precision: (batch, heads, length, head_dim) each."""
    q, k, v = q.double(), k.double(), v.double()
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return scores.softmax(-1) @ v


def difference(variant: Any, shape: tuple[int, int, int, int]) -> float:
    """The largest error of a variant in tolerances: up to 1 is right."""
    batch, heads, queries, keys = shape
    size, chance = variant.parameters["head_dim"], torch.Generator("cuda").manual_seed(sum(shape))
    q, k, v = (
        torch.randn(batch, heads, length, size, generator=chance, device="cuda").half()
        for length in (queries, keys, keys)
    )
    wanted = reference(q, k, v, causal=variant.parameters["causal"])
    found = variant(q, k, v)
    torch.cuda.synchronize()
    if found.shape != wanted.shape or found.dtype != torch.half:
        return float("inf")
    error = (found.double() - wanted).abs() / (ABSOLUTE + RELATIVE * wanted.abs())
    return float(error.nan_to_num(float("inf")).max())


def main(package: str) -> int:
    if not torch.cuda.is_available():
        print("there is no GPU to run the variants on", file=sys.stderr)
        return 2
    wrong = 0
    made = imported(package)
    for variant in made.variants.values():
        shapes = SHAPES if variant.parameters["causal"] else [*SHAPES, *OTHER_KEYS]
        try:
            worst = max(difference(variant, shape) for shape in shapes)
        except RuntimeError as error:
            wrong += 1
            print(f"FAILED  {variant.key}: {error}")
            continue
        is_right = worst <= 1
        wrong += not is_right
        print(f"{'right' if is_right else 'WRONG'}  {worst:6.3f} of the tolerance  {variant.key}")
    print(f"{len(made.variants) - wrong} of {len(made.variants)} variants are right")
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))

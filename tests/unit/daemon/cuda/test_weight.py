"""What a CUDA unit costs where nothing is warm for it."""

from __future__ import annotations

import pytest

from warmcc.daemon.cuda.unit_text import eligibility


@pytest.mark.parametrize(
    ("headers", "weight"),
    [
        ("<torch/extension.h>", 1), ("<ATen/ATen.h> <torch/all.h>", 1), ('"torch/torch.h"', 1),
        ("<torch/csrc/api/include/torch/types.h>", 1), ("<torch/nn/module.h>", 1),
        ("<torch/types.h> <cuda.h>", 0.4), ("<torch/library.h>", 0.4),
        ("<ATen/cuda/CUDAContext.h> <torch/types.h>", 0.4), ("<ATen/core/Tensor.h>", 0.15),
        ("<ATen/cuda/CUDAContext.h> <c10/cuda/CUDAGuard.h>", 0.15), ("<ATen/Dispatch.h>", 0.15),
        ("<c10/cuda/CUDAStream.h>", 0), ("<torch/headeronly/util/Half.h>", 0), ("<cub/cub.cuh>", 0),
        ("", 0),
    ],
)  # fmt: skip
def test_what_a_unit_costs_without_warm_state(headers: str, weight: float) -> None:
    text = "".join(f"#include {name}\n" for name in headers.split())
    assert eligibility.weight(text) == weight

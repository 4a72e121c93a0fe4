"""torch_spline_conv: a B-spline's basis, and its product with weights."""

import torch

from benchmarks.packages.computed import computed

for name in ("basis", "weighting", "version"):
    torch.ops.load_library(f"torch_spline_conv/_{name}_cuda.so")
torch.manual_seed(1)
ops = torch.ops.torch_spline_conv
pseudo = torch.rand(100, 2).cuda()
size, is_open = torch.tensor([5, 5]).cuda(), torch.tensor([1, 1], dtype=torch.uint8).cuda()
basis, index = ops.spline_basis(pseudo, size, is_open, 2)
computed("basis", basis)
computed("index", index)
weight = torch.randn(25, 8, 4).cuda()
computed("weighted", ops.spline_weighting(torch.randn(100, 8).cuda(), weight, basis, index))

"""DeepSpeed's FusedAdam: three steps on a GPU."""

import torch
from deepspeed.ops.adam import FusedAdam

from benchmarks.packages.computed import computed

torch.manual_seed(1)
parameters = [torch.nn.Parameter(torch.randn(size).cuda()) for size in (1000, 64)]
optimizer = FusedAdam(parameters, lr=1e-2, weight_decay=1e-2)
for _ in range(3):
    for one in parameters:
        one.grad = torch.randn(one.shape).cuda()
    optimizer.step()
for number, one in enumerate(parameters):
    computed(f"parameter {number}", one)

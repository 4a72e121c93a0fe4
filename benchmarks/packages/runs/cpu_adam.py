"""DeepSpeed's DeepSpeedCPUAdam: three steps on the CPU."""

import torch
from deepspeed.ops.adam import DeepSpeedCPUAdam

from benchmarks.packages.computed import computed

torch.manual_seed(1)
parameters = [torch.nn.Parameter(torch.randn(size)) for size in (1000, 64)]
optimizer = DeepSpeedCPUAdam(parameters, lr=1e-2, weight_decay=1e-2)
for _ in range(3):
    for one in parameters:
        one.grad = torch.randn(one.shape)
    optimizer.step()
for number, one in enumerate(parameters):
    computed(f"parameter {number}", one)

"""slangtorch: a kernel that squares."""

import slangtorch
import torch

from benchmarks.packages.computed import computed

module = slangtorch.loadModule("square.slang")
x = torch.arange(100.0).cuda()
y = torch.zeros_like(x)
module.square(x=x, y=y).launchRaw(blockSize=(128, 1, 1), gridSize=(1, 1, 1))
assert torch.equal(y, x * x)
computed("squares", y)

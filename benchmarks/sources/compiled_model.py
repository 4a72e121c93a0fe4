"""A model compiled by torch.compile, on the GPU where there is one, else on the processor.

Prints JSON: when its first result was there (the machine's clock, seconds), whether that is eager
mode's, and what was done for it: graphs compiled, and kernels that Triton made machine code of.
"""

import json
import time

import torch
from torch._dynamo.utils import counters
from torch._inductor import config

cubins = 0
on_gpu = torch.cuda.is_available()
if on_gpu:
    from triton.backends.nvidia.compiler import CUDABackend

    make_cubin = CUDABackend.make_cubin

    def counted(*arguments, **named):
        global cubins
        cubins += 1
        return make_cubin(*arguments, **named)

    CUDABackend.make_cubin = counted

torch.manual_seed(0)
device = "cuda" if on_gpu else "cpu"
config.compile_threads = 1  # so that all is counted here
model = torch.nn.Sequential(
    torch.nn.Linear(512, 1024), torch.nn.GELU(), torch.nn.LayerNorm(1024),
    torch.nn.Linear(1024, 512), torch.nn.Softmax(dim=-1),
).to(device)  # fmt: skip
x = torch.randn(256, 512, device=device)
with torch.no_grad():
    compiled = torch.compile(model, options={"max_autotune": on_gpu})
    found = compiled(x).cpu()
    done = time.clock_gettime(time.CLOCK_MONOTONIC)
    right = torch.allclose(found, model(x).cpu(), rtol=1e-3, atol=1e-4)
print(json.dumps({
    "done": done, "right": right, "device": device, "cubins": cubins,
    "graphs": counters["inductor"]["fxgraph_cache_miss"],
}))  # fmt: skip

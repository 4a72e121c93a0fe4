"""The same image for a service that builds images from Python, such as Modal: ``modal run
modal_image.py``. It was not tried there; bake.sh is tested.
"""

from pathlib import Path

import modal

SOURCE = Path(__file__).resolve().parents[2]  # a checkout of warmcc
image = (
    modal.Image.from_registry("nvidia/cuda:13.0.1-devel-ubuntu24.04", add_python="3.12")
    .apt_install("g++")
    .pip_install("torch==2.12.0")
    .add_local_dir(SOURCE, "/opt/warmcc-source", copy=True)
    .run_commands("pip install /opt/warmcc-source")
    .env({"TORCH_CUDA_ARCH_LIST": "9.0"})
    .run_commands("sh /opt/warmcc-source/examples/image/bake.sh /var/cache/warmcc")
    .env({"WARMCC_BAKED": "/var/cache/warmcc"})
)
app = modal.App("warm-extensions", image=image)

KERNEL = """
#include <torch/extension.h>
__global__ void twice(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= 2;
}
torch::Tensor run(torch::Tensor x) {
  twice<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), x.numel());
  return x;
}
"""


@app.function(gpu="H100")
def evaluate(source: str) -> float:
    """Build a kernel, and run it on ones."""
    import torch

    import warmcc

    built = warmcc.load_inline(
        "kernel", "torch::Tensor run(torch::Tensor x);", source, functions=["run"]
    )
    return float(built.run(torch.ones(1000, device="cuda")).sum())


@app.local_entrypoint()
def main() -> None:
    print(evaluate.remote(KERNEL))

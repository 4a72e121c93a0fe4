"""The blocks for CUDA of the documentation, and the example for CUDA, run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.cuda.conftest import CudaDaemon
from tests.integration.test_examples import run
from tests.support import pages

# Files that a page mentions and does not show.
FILES = {
    "README.md": {
        "kernel.cu": "__global__ void k(float* x) { x[threadIdx.x] = fmaxf(x[threadIdx.x], 0); }\n"
        "void relu(at::Tensor x) { k<<<1, x.numel()>>>(x.data_ptr<float>()); }\n",
        "bench.py": "print('measured')\n",
    }
}


@pytest.mark.parametrize(
    "page",
    [page for page in pages.PAGES if pages.has_runs(page, cuda=True)],
    ids=pages.name_of,
)
def test_everything_on_the_page_runs(page: Path, warm_cuda: CudaDaemon, tmp_path: Path) -> None:
    pages.run(page, tmp_path, warm_cuda, cuda=True, files=FILES.get(pages.name_of(page)))


def test_the_example_runs(warm_cuda: CudaDaemon, tmp_path: Path) -> None:
    said = "the numbers are right" if torch.cuda.is_available() else "there is no GPU"
    assert said in run("cuda_kernel.py", warm_cuda, tmp_path)

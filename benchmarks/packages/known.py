"""The packages, in pinned versions, with the words that build each as its users do."""

from __future__ import annotations

import hashlib
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.road import foreign

FILES = "https://files.pythonhosted.org/packages"
_BUILD = ["setup.py", "build_ext", "--inplace"]


@dataclass(frozen=True)
class Package:
    """``place`` is its archive's below ``FILES``; ``words`` are python's, run in its folder.

    ``edited`` is the source that gets another line; where that says nothing to its compiler,
    ``replaced`` has what is replaced in it, and by what. ``loads``: what to run once it is built.
    ``run``: a script of ``runs/`` that computes on a GPU. ``needs``: what it imports besides torch,
    in the newest versions. ``files`` are its user's.
    """

    name: str
    place: str
    sha256: str
    words: list[str]
    edited: str
    loads: str
    environment: dict[str, str] = field(default_factory=dict)
    replaced: tuple[str, str] | None = None
    run: str = ""
    needs: tuple[str, ...] = ("wheel==0.45.1",)
    files: dict[str, str] = field(default_factory=dict)

    @property
    def short(self) -> str:
        return self.name.split("-")[0]

    @property
    def builds_at_run_time(self) -> bool:
        return self.words[0] == "-c"

    @property
    def is_wheel(self) -> bool:
        return self.name.endswith(".whl")

    @property
    def archive(self) -> str:
        return self.name if self.is_wheel else f"{self.name}.tar.gz"


CAUSAL_CONV1D = Package(
    "causal_conv1d-1.7.0",
    "f4/d1/eba27735f31bd5527d39a3c7f693e6ded7b844cab275db719a15ad37b6cd",
    "3202758494eaa7b597ce1c282dfa188889506bfcb92cad3c407d26736bfcd32b",
    _BUILD, "csrc/causal_conv1d_update.cu", "import torch, causal_conv1d_cuda",
    {"CAUSAL_CONV1D_FORCE_BUILD": "TRUE"},
)  # fmt: skip
TORCH_SCATTER = Package(
    "torch_scatter-2.1.2",
    "f5/ab/2a44ecac0f891dd0d765fc59ac8d277c6283a31907626560e72685df2ed6",
    "69b3aa435f2424ac6a1bfb6ff702da6eb73b33ca0db38fb26989c74159258e47",
    _BUILD, "csrc/cuda/segment_coo_cuda.cu",
    "import torch; torch.ops.load_library('torch_scatter/_scatter_cuda.so')",
    {"FORCE_ONLY_CUDA": "1"},
)  # fmt: skip
TORCH_SPLINE_CONV = Package(
    "torch_spline_conv-1.2.2",
    "a0/50/5f80c47bf09b561ded0981b088ab0064424843696aa35b3b83afde421e56",
    "ed45a81da29f774665dbdd4709d7e534cdf16d2e7006dbd06957f35bd09661b2",
    _BUILD, "csrc/cuda/weighting_cuda.cu",
    "import torch; [torch.ops.load_library(f'torch_spline_conv/_{name}_cuda.so')"
    " for name in ('basis', 'weighting', 'version')]",
    {"FORCE_ONLY_CUDA": "1"}, run="spline_conv.py",
)  # fmt: skip
NERFACC = Package(
    "nerfacc-0.5.3",
    "8a/c3/36c5bf9a77580b4cb2ecac8d41037cc6b5051f91a6c4eaa8d189c50dcbf3",
    "01850cbbd71b6aeab059cbfb695755f8b6604f3fdfe48c44925b4b97c0c324db",
    ["-c", "import nerfacc.cuda._backend as built; assert built._C is not None"],
    "nerfacc/cuda/csrc/grid.cu", "import nerfacc.cuda._backend", run="nerfacc.py",
)  # fmt: skip
EXLLAMAV2 = Package(
    "exllamav2-0.3.2-py3-none-any.whl",
    "25/6f/dd7fac30c1e93d6a58a4a8d96cea6597710cdd114e7cc4fdc0476ad61d03",
    "7cd61ae4bf1d8d12034595ab9731f0f43bac415d6394fbb273d4383293d6079e",
    ["-c", "import exllamav2.ext"], "exllamav2/exllamav2_ext/cuda/softcap.cu",
    "import exllamav2.ext", run="exllamav2.py", needs=("safetensors", "pillow", "numpy", "regex"),
)  # fmt: skip
_DEEPSPEED = (
    "deepspeed-0.18.2",
    "74/cd/c4cdcc947db3d1f103223b2067e455710c5674acdff249289bc3c0501ecf",
    "892c3213cfefe6df8692d699eae3ca37714cac87afe7f72d4b89acd1df3af1c0",
)
_NEEDS = (
    "einops", "hjson", "msgpack", "numpy", "packaging", "py-cpuinfo", "pydantic", "tqdm",
)  # fmt: skip
_LOAD = "from deepspeed.ops.op_builder import {0}Builder; {0}Builder().load()"
CPU_ADAM = Package(
    *_DEEPSPEED, ["-c", _LOAD.format("CPUAdam")], "csrc/adam/cpu_adam.cpp",
    _LOAD.format("CPUAdam"), run="cpu_adam.py", needs=_NEEDS,
)  # fmt: skip
FUSED_ADAM = Package(
    *_DEEPSPEED, ["-c", _LOAD.format("FusedAdam")],
    "csrc/adam/multi_tensor_adam.cu", _LOAD.format("FusedAdam"),
    run="fused_adam.py", needs=_NEEDS,
)  # fmt: skip
_SQUARE = """[AutoPyBindCUDA]
[CUDAKernel]
void square(TensorView<float> x, TensorView<float> y)
{
    uint3 i = cudaBlockIdx() * cudaBlockDim() + cudaThreadIdx();
    if (i.x < x.size(0))
        y[i.x] = x[i.x] * x[i.x];
}
"""
SLANGTORCH = Package(
    "slangtorch-1.3.22-py3-none-manylinux_2_27_x86_64.whl",
    "59/db/f58a546564b8992e8e4c66b3e1b99432a87acec4317b10b1b9c7927868b9",
    "7755f2f53509ebbd65839dcd8a104e7105aeaf3e3600aea9385c2bec9beb2eaa",
    ["-c", "import slangtorch; slangtorch.loadModule('square.slang')"], "square.slang",
    "import slangtorch; slangtorch.loadModule('square.slang')", run="slangtorch.py",
    replaced=("x[i.x] * x[i.x]", "x[i.x] * x[i.x] + 1"), needs=("filelock",),
    files={"square.slang": _SQUARE},
)  # fmt: skip
PACKAGES = {
    "causal_conv1d": CAUSAL_CONV1D, "torch_scatter": TORCH_SCATTER,
    "torch_spline_conv": TORCH_SPLINE_CONV, "nerfacc": NERFACC, "exllamav2": EXLLAMAV2,
    "cpu_adam": CPU_ADAM, "fused_adam": FUSED_ADAM, "slangtorch": SLANGTORCH,
}  # fmt: skip


def archive(package: Package) -> Path:
    """Its archive, downloaded if need be. Raises foreign.Missing."""
    kept = foreign.cache() / package.archive
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        try:
            with urllib.request.urlopen(f"{FILES}/{package.place}/{kept.name}", timeout=60) as got:
                kept.write_bytes(got.read())
        except OSError as error:
            raise foreign.Missing(f"{package.name} could not be downloaded: {error}") from error
    if hashlib.sha256(kept.read_bytes()).hexdigest() != package.sha256:
        raise foreign.Missing(f"{kept} is not what it was when this was written; remove it")
    return kept

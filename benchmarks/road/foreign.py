"""Packages from PyPI that build at run time: their sources, and what they pass to
``torch.utils.cpp_extension.load``.

Files are downloaded by pip when they are first needed, in pinned versions, and kept in a cache
folder. The lists of sources and flags are read off ``op_builder/*.py`` (DeepSpeed),
``exllama/cuda_ext.py`` and ``exllamav2/ext.py``; the last source is the one that is edited.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOWNLOAD_SECONDS = 300.0


class Missing(RuntimeError):
    """A package cannot be had here; says why."""


@dataclass(frozen=True)
class Package:
    """``pinned`` is its requirement. ``folders`` have all that its sources include; ``sources`` and
    ``include`` are below its top folder. Of the exllamav2 that builds at run time PyPI has a wheel
    alone: it holds the sources."""

    name: str
    about: str
    pinned: str
    folders: tuple[str, ...]
    sources: tuple[str, ...]
    include: tuple[str, ...]
    base_cflags: tuple[str, ...]
    cuda_cflags: list[str] | None = None
    simd: bool = False
    source_only: bool = True

    @property
    def is_cuda(self) -> bool:
        return any(path.endswith(".cu") for path in self.sources)

    def cflags(self) -> list[str]:
        return [*self.base_cflags, *([f"-D{_simd()}"] if self.simd else [])]

    def files(self, root: Path) -> Iterator[str]:
        """All files of its folders, sources and headers."""
        for folder in self.folders:
            for path in sorted((root / folder).rglob("*")):
                if path.suffix in (".cpp", ".cu", ".h", ".cuh"):
                    yield str(path.relative_to(root))


def _simd() -> str:
    """What DeepSpeed makes of the processor's flags."""
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    return "__AVX512__" if "avx512" in flags else "__AVX256__" if "avx2" in flags else "__SCALAR__"


_DEEPSPEED = "deepspeed==0.18.2"
_ADAM = ("csrc/adam", "csrc/includes", "csrc/cpu/adam")
_VERSIONS = ("-DVERSION_GE_1_1", "-DVERSION_GE_1_3", "-DVERSION_GE_1_5")
_GLOG = ("-UC10_USE_GLOG", "-DBF16_AVAILABLE")

CPU_ADAM = Package(
    "deepspeed-cpu-adam", "DeepSpeed's cpu_adam, C++", _DEEPSPEED, _ADAM,
    ("csrc/adam/cpu_adam.cpp", "csrc/adam/cpu_adam_impl.cpp"), ("csrc/includes",),
    ("-O3", "-std=c++17", "-g", "-Wno-reorder", "-lcudart", "-lcublas", "-g", "-march=native",
        "-fopenmp",
     "-D__ENABLE_CUDA__", *_GLOG), simd=True,
)  # fmt: skip
FUSED_ADAM_CPU = Package(
    "deepspeed-fused-adam-cpu", "DeepSpeed's fused_adam for the CPU, C++", _DEEPSPEED, _ADAM,
    ("csrc/cpu/adam/fused_adam.cpp", "csrc/adam/cpu_adam_impl.cpp"), ("csrc/includes",),
    ("-O3", "-g", "-Wno-reorder", "-march=native", "-fopenmp", "-UC10_USE_GLOG"), simd=True,
)  # fmt: skip
FUSED_ADAM = Package(
    "deepspeed-fused-adam", "DeepSpeed's fused_adam, CUDA", _DEEPSPEED, _ADAM,
    ("csrc/adam/fused_adam_frontend.cpp", "csrc/adam/multi_tensor_adam.cu"),
    ("csrc/includes", "csrc/adam"), ("-O3", "-std=c++17", "-g", "-Wno-reorder", *_VERSIONS, *_GLOG),
    ["-O3", *_VERSIONS, "-lineinfo", "--use_fast_math", "-gencode=arch=compute_90,code=sm_90",
     "-gencode=arch=compute_90,code=compute_90", *_GLOG, "-U__CUDA_NO_BFLOAT16_OPERATORS__",
     "-U__CUDA_NO_BFLOAT162_OPERATORS__", "-U__CUDA_NO_BFLOAT16_CONVERSIONS__"],
)  # fmt: skip

_EXLLAMAV2_CPP = (
    "ext_bindings ext_cache ext_gemm ext_hadamard ext_norm ext_qattn ext_qmatrix "
    "ext_qmlp ext_quant ext_rope "
    "ext_stloader ext_sampling ext_element ext_tp cpp/quantize_func cpp/profiling "
    "cpp/generator cpp/sampling "
    "cpp/sampling_avx2"
)
_EXLLAMAV2_CUDA = (
    "graph h_add h_gemm lora pack_tensor quantize q_matrix q_attn q_mlp q_gemm rms_norm "
    "head_norm layer_norm rope "
    "cache util tp comp_units/kernel_select comp_units/unit_gptq_1 "
    "comp_units/unit_gptq_2 comp_units/unit_gptq_3 "
    "comp_units/unit_exl2_1a comp_units/unit_exl2_1b comp_units/unit_exl2_2a "
    "comp_units/unit_exl2_2b "
    "comp_units/unit_exl2_3a comp_units/unit_exl2_3b softcap"
)
_EXLLAMAV2 = "exllamav2/exllamav2_ext"
EXLLAMAV2 = Package(
    "exllamav2", "exllamav2, CUDA and C++", "exllamav2==0.3.2", (_EXLLAMAV2,),
    (*(f"{_EXLLAMAV2}/{name}.cpp" for name in _EXLLAMAV2_CPP.split()),
     *(f"{_EXLLAMAV2}/cuda/{name}.cu" for name in _EXLLAMAV2_CUDA.split())),
    (_EXLLAMAV2,), ("-Ofast",), ["-lineinfo", "-O3"], source_only=False,
)  # fmt: skip

_EXLLAMA = "exllama/exllama_ext"
EXLLAMA = Package(
    "exllama", "exllama, CUDA and C++", "exllama==0.1.0", (_EXLLAMA,),
    tuple(
        f"{_EXLLAMA}/{path}"
        for path in (
            "exllama_ext.cpp", "cpu_func/rep_penalty.cpp", "cuda_buffers.cu",
            "cuda_func/q4_matrix.cu", "cuda_func/q4_matmul.cu", "cuda_func/column_remap.cu",
            "cuda_func/rms_norm.cu", "cuda_func/rope.cu", "cuda_func/half_matmul.cu",
            "cuda_func/q4_attn.cu", "cuda_func/q4_mlp.cu",
        )
    ),
    (_EXLLAMA,), ("-O3",), ["-lineinfo"],
)  # fmt: skip


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "warmcc-benchmarks"


def unpacked(package: Package) -> Path:
    """The top folder of its files, downloaded if need be. Raises Missing."""
    kept = cache() / package.pinned
    if not kept.is_dir():
        try:
            kept.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=kept.parent) as work:
                _unpack(_download(package, Path(work)), Path(work) / "files")
                os.replace(Path(work) / "files", kept)
        except (OSError, subprocess.SubprocessError, tarfile.TarError, zipfile.BadZipFile) as error:
            raise Missing(f"{package.pinned} could not be downloaded: {_reason(error)}") from error
    if lacking := [path for path in package.sources if not (kept / path).is_file()]:
        raise Missing(
            f"{package.pinned} in {kept} lacks {lacking[0]}; remove that folder to "
            f"download it again"
        )
    return kept


def _reason(error: Exception) -> str:
    """The line of pip's that says what went wrong, or what the system says."""
    if isinstance(error, subprocess.CalledProcessError):
        lines = [
            line for line in error.stderr.splitlines() if line.startswith("ERROR")
        ] or error.stderr.splitlines()
        return lines[-1] if lines else f"pip ended with status {error.returncode}"
    return str(error)


def _download(package: Package, folder: Path) -> Path:
    form = [f"--no-binary={package.pinned.partition('==')[0]}"] if package.source_only else []
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--disable-pip-version-check",
        "--no-deps",
        *form,
    ]
    subprocess.run(
        [*command, "--dest", str(folder), package.pinned], cwd=folder, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=True, timeout=DOWNLOAD_SECONDS,
    )  # fmt: skip
    return next(path for path in folder.iterdir() if path.suffix in (".gz", ".whl", ".zip"))


def _unpack(archive: Path, target: Path) -> None:
    """Unpack, without the folder that a source archive has around everything."""
    if archive.suffix != ".gz":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(target)
        return
    around = target.with_name("around")
    with tarfile.open(archive) as files:
        if hasattr(tarfile, "data_filter"):
            files.extractall(around, filter="data")
        else:  # Python before 3.11.4 and 3.10.12
            files.extractall(around)
    (top,) = around.iterdir()
    shutil.move(top, target)

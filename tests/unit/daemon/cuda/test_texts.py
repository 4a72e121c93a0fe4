"""What is told from texts alone on the way of a CUDA unit: nvcc's plan, its flags, the overlay,
what cudafe++ wrote.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from warmcc.daemon.cuda import dryrun
from warmcc.daemon.cuda.overlay import overlay
from warmcc.daemon.cuda.sample import Compared, differing
from warmcc.daemon.cuda.unit_text import eligibility
from warmcc.daemon.toolchain import nvcc_flags

TMP = "/tmp/tmpxft_0000abcd_00000000"
DRYRUN = """\
#$ _SPACE_=
#$ TOP=/opt/cuda/bin/..
#$ CICC_PATH=/opt/cuda/bin/../nvvm/bin
#$ gcc -std=c++17 -D__CUDA_ARCH__=900 -E -x c++ -include "cuda_runtime.h" \
"cuda.cu" -o "TMP-7_cuda.cpp1.ii"
#$ gcc -std=c++17 -E -x c++ -D__CUDACC__ -include "cuda_runtime.h" -m64 \
"cuda.cu" -o "TMP-5_cuda.cpp4.ii"
#$ cudafe++ --gen_c_file_name "TMP-6_cuda.cudafe1.cpp" \
--stub_file_name "NAME-6_cuda.cudafe1.stub.c" \
--gen_module_id_file --module_id_file_name "TMP-4_cuda.module_id" "TMP-5_cuda.cpp4.ii"
#$ "$CICC_PATH/cicc" -arch compute_90 --module_id_file_name "TMP-4_cuda.module_id" \
"TMP-7_cuda.cpp1.ii" \
-o "TMP-6_cuda.ptx"
#$ ptxas -arch=sm_90 -m64 "TMP-6_cuda.ptx" -o "TMP-8_cuda.cubin"
#$ fatbinary -64 "--image3=kind=elf,sm=90,file=TMP-8_cuda.cubin" \
--embedded-fatbin="TMP-3_cuda.fatbin.c"
#$ rm TMP-3_cuda.fatbin
#$ gcc -std=c++17 -D__CUDA_ARCH__=900 -c -x c++ -m64 "TMP-6_cuda.cudafe1.cpp" -o "cuda.o"
""".replace("TMP", TMP).replace("NAME", TMP[5:])
VARIABLES = {"CICC_PATH": "/opt/cuda/bin/../nvvm/bin"}


def test_a_plan_is_read_with_names_of_its_own() -> None:
    plan = dryrun.parse(DRYRUN, VARIABLES)
    assert plan.preprocess.words[-3:] == ["cuda.cu", "-o", "cuda.cpp4.ii"]
    assert plan.cudafe.input == "cuda.cpp4.ii" and "--gen_module_id_file" not in plan.cudafe.words
    (device,) = plan.devices
    assert device.architecture == "90"
    assert device.cicc.options[0] == "/opt/cuda/bin/../nvvm/bin/cicc"
    assert (device.cicc.input, device.cicc.output) == ("cuda.cpp1.ii", "cuda.ptx")
    (ptxas,) = device.ptxas
    assert ptxas.words == ["ptxas", "-arch=sm_90", "-m64", "cuda.ptx", "-o", "cuda.cubin"]
    assert plan.fatbinary.packages == ("cuda.fatbin.c",)
    assert plan.host.words[-3:] == ["cuda.cudafe1.cpp", "-o", "cuda.o"]


def test_ptx_that_stays_ptx_is_checked() -> None:
    """As with ``-gencode=arch=compute_90,code=compute_90``."""
    text = DRYRUN.replace(
        f'ptxas -arch=sm_90 -m64 "{TMP}-6_cuda.ptx" -o "{TMP}-8_cuda.cubin"',
        f'ptxas -arch=compute_90 -m64 "{TMP}-6_cuda.ptx"',
    ).replace(f"kind=elf,sm=90,file={TMP}-8_cuda.cubin", f"kind=ptx,sm=90,file={TMP}-6_cuda.ptx")
    plan = dryrun.parse(text, VARIABLES)
    (step,) = plan.devices[0].ptxas
    assert step.words == ["ptxas", "-arch=compute_90", "-m64", "cuda.ptx"] and not step.output
    assert plan.fatbinary.images == ("cuda.ptx",)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("#$ ptxas ", "#$ newstep ", "an unknown program newstep"),
        (
            '-E -x c++ -D__CUDACC__ -include "cuda_runtime.h" -m64',
            "-S -x c++ -m64",
            "an unknown call",
        ),
        (f"file={TMP}-8_cuda.cubin", "file=/elsewhere.cubin", "fatbinary packs something else"),
        (
            f'"{TMP}-5_cuda.cpp4.ii"\n#$ "$CICC',
            '"other.ii"\n#$ "$CICC',
            "a front end reads something else",
        ),
        ("#$ fatbinary", "#$ rm /a\n#$ fatbinary", ""),
        ("#$ cudafe++", "nvcc fatal: no such thing\n#$ cudafe++", "nvcc fatal"),
        ("#$ fatbinary", "#$ cudafe++", "duplicate step"),
        ("--stub_file_name", "--stub", "without --stub_file_name"),
        (
            '-o "TMP-6_cuda.ptx"'.replace("TMP", TMP),
            f'"{TMP}-6_cuda.ptx"',
            "does not end in its two files",
        ),
    ],
)
def test_a_plan_is_understood_to_the_last_word_or_not_at_all(
    old: str, new: str, reason: str
) -> None:
    text = DRYRUN.replace(old, new)
    if not reason:
        dryrun.parse(text, VARIABLES)
        return
    assert text != DRYRUN
    with pytest.raises(dryrun.UnknownPlan, match=reason):
        dryrun.parse(text, VARIABLES)


@pytest.mark.parametrize(
    "given",
    [
        [
            "-O3",
            "--use_fast_math",
            "-lineinfo",
            "-std=c++17",
            "--expt-relaxed-constexpr",
            "--extended-lambda",
        ],
        ["-gencode=arch=compute_90a,code=sm_90a", "-gencode", "arch=compute_80,code=sm_80"],
        ["-Xptxas", "-O3,-v", "--ptxas-options=-v", "-Xcompiler", "-fPIC,-O2", "-maxrregcount=64"],
        ["-DNAME=3", "-D", "OTHER", "-I/a", "-I", "/b", "-U__CUDA_NO_HALF_OPERATORS__"],
    ],
)
def test_usual_flags_are_understood(given: list[str]) -> None:
    assert nvcc_flags.unkeyable(given) is None


@pytest.mark.parametrize(
    "flag",
    [
        "--keep", "-o/tmp/x", "-ccbin=/opt/g++", "-dlto", "-rdc=true", "--options-file=x",
        "-Xcompiler=-fplugin=x.so", "-Xcompiler=-I/a", "-Xptxas=--no-such", "$(id)", "-MF",
        "-odir=/tmp", "-ptx", "--dryrun", "-run",
    ],
)  # fmt: skip
def test_other_flags_are_not(flag: str) -> None:
    assert nvcc_flags.unkeyable(["-O2", flag]) is not None


@pytest.fixture
def lean(tmp_path: Path) -> Path:
    """An overlay of two operators, and a check of arguments."""
    operators = ("ATen/ops/empty.h", "torch/factories/empty.h", "ATen/ops/add.h")
    for name in (*operators, "torch/checks/TensorArg.h"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def test_what_is_mentioned_is_included(lean: Path) -> None:
    found = overlay.mentioned(lean, "auto y = torch::empty({1}); // additional")
    assert found == ["ATen/ops/empty.h", "torch/factories/empty.h"]
    assert overlay.mentioned(lean, "at::TensorArg x{y, 1};") == ["torch/checks/TensorArg.h"]


def test_an_overlay_that_is_gone_is_missed_only_as_long_as_it_is(lean: Path) -> None:
    place = lean / "again"
    with pytest.raises(FileNotFoundError):
        overlay.mentioned(place, "add")
    shutil.copytree(lean, place)
    assert overlay.mentioned(place, "add") == ["ATen/ops/add.h"]


@pytest.mark.parametrize(
    ("text", "on_host", "on_devices"),
    [
        ("PYBIND11_MODULE(x, m) {}", True, False),
        ('PYBIND11_MODULE(x, m) { m.def("f", &f, py::arg("x")); }', True, True),
        ("PYBIND11_MAKE_OPAQUE(std::vector<int>)", True, True),
        ("void f(pybind11::object x);", True, True),
        ("int px = 1, py = 2;", False, False),
    ],
)
def test_what_binds_a_module_gets_pybind11(
    text: str, on_host: bool, on_devices: bool, lean: Path
) -> None:
    pybind = ["torch/csrc/utils/pybind.h"]
    whole = "#include <torch/extension.h>\n" + text
    assert overlay.mentioned(lean, whole) == (pybind if on_host else [])
    assert overlay.mentioned(lean, whole, on_host=False) == (pybind if on_devices else [])
    assert overlay.mentioned(lean, "#include <torch/types.h>\n" + text) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("#if __CUDA_ARCH__ >= 800 && CUDA_VERSION > 12000\n#endif", None),
        ("#define BLOCK 4\n#if defined(BLOCK) && BLOCK > 2\n#endif", None),
        ("#ifdef TORCH_API\n#endif", "a condition on TORCH_API"),
        ("  #  elif defined ( USE_X )", "a condition on USE_X"),
        ("auto s = at::cuda::getCurrentCUDAStream();", "at::cuda without its header"),
        ("#include <c10/cuda/CUDAStream.h>\nauto s = at::cuda::getCurrentCUDAStream();", None),
        ("#if __has_include(<torch/nn.h>)", "__has_include may"),
    ],
)
def test_what_a_reduced_prelude_may_change(text: str, reason: str | None) -> None:
    found = eligibility.why_not_lean(text)
    assert found is None if reason is None else (found or "").startswith(reason)


def test_differences_are_named() -> None:
    same = Compared({"cuda.ptx": "ld;"}, frozenset({"f"}))
    assert differing(same, same) == []
    assert differing(same, Compared({"cuda.ptx": "st;", "more.ptx": ""}, frozenset({"g"}))) == [
        "cuda.ptx", "more.ptx", "f", "g",
    ]  # fmt: skip


TYPES = "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n"
KNOWN = frozenset(
    (
        "/t/torch/types.h",
        "/c/cuda.h",
        "/c/cuda_runtime.h",
        "/usr/include/c++/12/vector",
        "/t/ATen/ATen.h",
    )
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (TYPES + "int x;", ("torch/types.h", "cuda.h", "cuda_runtime.h")),
        (
            TYPES + '#include <vector>\n#include "own.h"\n',
            ("torch/types.h", "cuda.h", "cuda_runtime.h", "vector"),
        ),
        ("#include <own.h>\n#include <torch/types.h>\n", ()),
        (TYPES + "int x;\n#include <ATen/ATen.h>\n", ("torch/types.h", "cuda.h", "cuda_runtime.h")),
        (TYPES + "#include <torch/extension.h>\n", ("torch/extension.h",)),
        (TYPES + "#include <own.h>\n#include <pybind11/stl.h>\n", None),
    ],
)
def test_the_prelude_of_a_warm_level(text: str, found: tuple[str, ...] | None) -> None:
    assert eligibility.block(text, KNOWN) == found


@pytest.mark.parametrize(
    ("text", "torch", "found"),
    [
        (
            "#include <cuda_runtime.h>\n#include <cstdio>\n#include <mine.h>\n",
            False,
            ("cuda_runtime.h", "cstdio"),
        ),
        ("#include <cub/cub.cuh>\n__global__ void f();", False, ("cub/cub.cuh",)),
        ("__global__ void f();", False, ()),
        ('#include "mine.h"\n', False, ()),
        ("#include <cuda_fp16.h>\n#include <ATen/ATen.h>\n", True, ("cuda_fp16.h",)),
    ],
)
def test_units_without_torch_have_a_prelude_of_the_toolkits(
    text: str, torch: bool, found: tuple[str, ...]
) -> None:
    assert eligibility.has_torch(text) is torch
    assert eligibility.toolkits(text) == found

"""Which CUDA units warm state may compile, and why not: each reason, and what is near it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from warmcc.daemon.cuda.unit_text import eligibility, own_text
from warmcc.daemon.plan.stock import Plan
from warmcc.request import Interpreter, Request

PYTHON = Interpreter("/opt/bin/python", ".cpython-311.so", "/opt/torch")
TEXT = "#include <torch/extension.h>\n__global__ void f() {}\n"


def hides_torch(text: str, folder: str, searched: list[str]) -> bool:
    """Whether a unit includes torch by way of its own headers, or may."""
    own = own_text.of(text, folder, searched, [])
    hidden = eligibility.has_torch(own.text) and not eligibility.has_torch(text)
    return hidden or bool(own.why_partial)


def has_own(text: str) -> bool:
    """Whether it has headers that would have to be looked into."""
    return bool(own_text.alone(text).why_partial)


def request(**changes: Any) -> Request:
    fields: dict[str, Any] = {
        "call": "load_inline", "name": "tiny", "module_name": "tiny", "interpreter": PYTHON,
        "environment": {"PATH": "/usr/bin"}, "cuda_sources": [TEXT],
    }  # fmt: skip
    return Request(**{**fields, **changes})


def why_not(text: str = TEXT, flags: str = "-O3", post: str = "", **changes: Any) -> str | None:
    plan = Plan("", {}, [], "", cuda_cflags=flags, cuda_post_cflags=post)
    return eligibility.why_not(request(**changes), plan, text)


# ---------------------------------------------------------------------- nvcc itself


def test_a_usual_unit_may_be_warm(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    assert why_not() is None
    assert why_not(extra_include_paths=[str(tmp_path), "/no/such/folder"]) is None
    assert (
        why_not(flags="-O3 -std=c++17 -DNDEBUG", post="-gencode arch=compute_90,code=sm_90") is None
    )


@pytest.mark.parametrize("flag", ["-g", "-G", "--debug", "--device-debug"])
def test_debug_information_is_nvccs(flag: str) -> None:
    assert why_not(flags=f"-O3 {flag}") == f"{flag} describes the source to a debugger"
    assert why_not(flags="-O3", post=flag) == f"{flag} describes the source to a debugger"


@pytest.mark.parametrize(
    "name",
    ["NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"],
)
def test_variables_that_change_what_headers_say_are_nvccs(name: str) -> None:
    assert why_not(environment={name: "/a"}) == f"{name} is set"


@pytest.mark.parametrize("name", ["CPATH", "CPLUS_INCLUDE_PATH"])
def test_folders_of_variables_count_as_the_callers(name: str, tmp_path: Path) -> None:
    assert why_not(environment={name: str(tmp_path)}) is None
    (tmp_path / "torch").mkdir()
    reason = "a folder of headers may stand in front of torch's"
    assert why_not(environment={name: str(tmp_path)}) == reason
    relative = "a variable names a relative folder of headers"
    assert why_not(environment={name: f"{tmp_path}:"}) == relative


def test_relative_paths_are_nvccs() -> None:
    relative = {"extra_cuda_cflags": ["-Iinclude"]}
    assert why_not(**relative, build_directory="/a") == "a flag may name a relative path"
    assert why_not(**relative) is None  # of no folder
    assert why_not(build_directory="/a") is None


@pytest.mark.parametrize("name", ["torch", "ATen", "c10"])
@pytest.mark.parametrize("way", ["flag", "two words", "path"])
def test_a_folder_that_may_stand_in_front_of_torchs(name: str, way: str, tmp_path: Path) -> None:
    (tmp_path / "own" / name).mkdir(parents=True)
    folder = str(tmp_path / "own")
    changes: dict[str, Any] = {
        "flag": {"extra_cuda_cflags": ["-O3", f"-I{folder}"]},
        "two words": {"extra_cuda_cflags": ["-O3", "-I", folder]},
        "path": {"extra_include_paths": ["/usr/share", folder]},
    }[way]
    assert why_not(**changes) == "a folder of headers may stand in front of torch's"


def test_the_folders_of_a_user() -> None:
    asked = request(extra_cuda_cflags=["-O3", "-I/a", "-I", "/b"], extra_include_paths=["/c"])
    assert eligibility.users_folders(asked) == ["/a", "/b", "/c"]


def test_torchs_and_the_toolkits_folders_are_no_users(tmp_path: Path) -> None:
    """A setup.py names all of them, and so do callers who give ``include_paths()``."""
    torch, home = tmp_path / "packages" / "torch", tmp_path / "cuda"
    theirs = [torch / "include", torch / "include" / "torch" / "csrc", home / "include"]
    for folder in theirs:
        (folder / "torch").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "packages")
    python = Interpreter("/opt/bin/python", ".so", str(tmp_path / "link" / "torch"))
    changes: dict[str, Any] = {
        "interpreter": python, "environment": {"CUDA_HOME": str(home)},
        "extra_cuda_cflags": [f"-I{folder}" for folder in theirs],
    }  # fmt: skip
    assert eligibility.users_folders(request(**changes)) == []
    assert why_not(**changes) is None
    near = [str(torch), f"{torch}/includes", f"{home}/include2"]
    assert eligibility.users_folders(request(**changes, extra_include_paths=near)) == near


@pytest.mark.parametrize("word", ["__COUNTER__", "__INCLUDE_LEVEL__"])
def test_what_counts_headers_is_nvccs(word: str) -> None:
    assert why_not(f"int x = {word};") == f"{word} depends on headers"
    assert eligibility.why_not_lean(f"int x = {word};") == f"{word} may depend on headers"


# ---------------------------------------------------------------------- behind reduced headers


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("__has_include(<a.h>)", "__has_include may depend on headers"),
        ("__has_include_next(<a.h>)", "__has_include_next may depend on headers"),
        ('#include <vector>\nauto s = "text";', None),
        ("#include <mine.cuh>", None),
        ("at::cuda::f();", "at::cuda without its header"),
        ("c10::cuda::f();", "c10::cuda without its header"),
        ("C10_CUDA_CHECK(x);", "C10_CUDA_CHECK without its header"),
        ("AT_CUDA_CHECK(x);", "AT_CUDA_CHECK without its header"),
        ("#include <c10/cuda/CUDAStream.h>\nat::cuda::f();", None),
        ("#include <ATen/cuda/CUDAContext.h>\nC10_CUDA_CHECK(x);", None),
        ("#\tinclude\t<ATen/cuda/CUDAContext.h>\nC10_CUDA_CHECK(x);", None),
        ("#include <torch/cuda/x.h>\nC10_CUDA_CHECK(x);", "C10_CUDA_CHECK without its header"),
        ("MY_AT_CUDA_CHECK(x); that::cudart(x); at::cudart();", None),
    ],
)
def test_what_asks_headers_for_more_than_they_declare(text: str, reason: str | None) -> None:
    assert eligibility.why_not_lean(text) == reason


@pytest.mark.parametrize(
    "directive",
    [
        "#if USE_X", "#ifdef USE_X", "#ifndef USE_X", "#elif USE_X", " \t# \tif !defined(USE_X)",
        "#if 1 && USE_X", "#if CUDA_VERSION > 12000 && USE_X",
    ],
)  # fmt: skip
def test_a_condition_on_what_a_header_may_define(directive: str) -> None:
    for text in (directive, f"int a;\n{directive}\nint b;\n#endif", f"#define OTHER\n{directive}"):
        assert eligibility.why_not_lean(text) == "a condition on USE_X may depend on headers"
    assert eligibility.why_not_lean(f"#define USE_X 1\n{directive}") is None
    assert eligibility.why_not_lean(f"#\tdefine\tUSE_X\n{directive}") is None


def test_only_what_headers_mention_counts_where_that_is_known() -> None:
    text = "#if USE_X || USE_Y\n#endif"
    assert eligibility.why_not_lean(text, set()) is None
    said = "a condition on USE_Y may depend on headers"
    assert eligibility.why_not_lean(text, {"USE_Y"}) == said


@pytest.mark.parametrize(
    "name",
    [
        "defined", "true", "false", "NDEBUG", "CUDA_VERSION", "CUDART_VERSION", "USE_ROCM",
        "__CUDA_ARCH__", "__GNUC__",
    ],
)  # fmt: skip
def test_a_condition_on_what_no_reduced_header_changes(name: str) -> None:
    assert eligibility.why_not_lean(f"#if {name}\n#endif") is None


@pytest.mark.parametrize("name", ["lower", "Mixed", "_own", "a1"])
def test_a_condition_on_a_name_of_any_form(name: str) -> None:
    said = f"a condition on {name} may depend on headers"
    assert eligibility.why_not_lean(f"#if {name} > 1\n#endif") == said


def test_a_word_in_code_is_no_condition() -> None:
    assert eligibility.why_not_lean("// see #if USE_X\nint iffy = USE_X;\n#iffy USE_X\n") is None
    assert eligibility.why_not_lean("#if 1\nUSE_X();\n#endif USE_X\n#else USE_X\n") is None


def test_an_include_in_quotes() -> None:
    assert has_own('int a;\n#include "a.h"\n')
    assert not has_own('#include <a.h>\nauto a = "a.h";\n')


# ---------------------------------------------------------------------- torch


@pytest.mark.parametrize("folder", ["torch", "ATen", "c10", "caffe2", "pybind11"])
def test_a_unit_that_includes_torch_itself(folder: str) -> None:
    assert eligibility.has_torch(f"int a;\n#include <{folder}/x.h>\n")
    assert eligibility.has_torch(f'#include <vector>\n#  include"{folder}/x.h"\n')
    assert not eligibility.has_torch(f"#include <my/{folder}/x.h>\n#include <my{folder}/x.h>\n")
    assert not eligibility.has_torch(f"#include <{folder}.h>\n// {folder}/x.h\n")


def hides(folder: Path, text: str, headers: dict[str, str], searched: tuple[str, ...] = ()) -> bool:
    for name, content in headers.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    (folder / "unit").mkdir(exist_ok=True)
    places = [str(folder / name) for name in searched]
    return hides_torch(text, str(folder / "unit"), places)


OF_TORCH = "#include <ATen/ATen.h>\n"


def test_torch_behind_a_header_beside_the_unit(tmp_path: Path) -> None:
    assert hides(tmp_path, '#include "a.h"', {"unit/a.h": OF_TORCH})
    assert not hides(tmp_path, '#include "a.h"', {"unit/a.h": "int a;"})
    assert not hides(tmp_path, OF_TORCH + '#include "a.h"', {"unit/a.h": OF_TORCH})  # it says so


def test_torch_behind_one_of_several_headers(tmp_path: Path) -> None:
    headers = {"unit/a.h": OF_TORCH, "unit/b.h": '#include "b.h"\n'}
    for names in (("a", "b", "none"), ("b", "none", "a"), ("none", "a", "b", "b")):
        text = "".join(f'#include "{name}.h"\n' for name in names)
        assert hides(tmp_path, text, headers), names


def test_torch_behind_a_header_beside_another_header(tmp_path: Path) -> None:
    headers = {"other/a.h": '#include "sub/b.h"\n', "other/sub/b.h": '#include "c.h"\n'}
    text = "#include <a.h>\n"
    assert hides(tmp_path, text, {**headers, "other/sub/c.h": OF_TORCH}, ("other",))
    assert not hides(tmp_path, text, {**headers, "other/sub/c.h": "", "c.h": OF_TORCH}, ("other",))
    assert not hides(tmp_path, text, {"other/sub/c.h": OF_TORCH})  # nobody looks into other


def test_the_header_that_is_found_first_counts(tmp_path: Path) -> None:
    headers = {"unit/a.h": "", "one/a.h": OF_TORCH, "one/b.h": "", "two/b.h": OF_TORCH}
    quoted, angled = ('#include "a.h"\n#include <b.h>\n', "#include <a.h>\n#include <b.h>\n")
    assert not hides(tmp_path, quoted, headers, ("one", "two"))
    assert hides(tmp_path, quoted, headers, ("two", "one"))
    assert hides(tmp_path, angled, headers, ("one", "two")), "not beside the unit"


def test_a_folder_is_no_header(tmp_path: Path) -> None:
    (tmp_path / "unit/a.h").mkdir(parents=True)
    assert hides(tmp_path, "#include <a.h>\n", {"one/a.h": OF_TORCH}, ("one",))


@pytest.mark.parametrize(("size", "hidden"), [(1 << 20, False), ((1 << 20) + 1, True)])
def test_what_lies_deep_in_a_large_header_is_not_known(
    size: int, hidden: bool, tmp_path: Path
) -> None:
    assert hides(tmp_path, '#include "a.h"', {"unit/a.h": "\n" * size}) is hidden


@pytest.mark.parametrize(("count", "hidden"), [(64, False), (65, True)])
def test_many_headers_are_not_looked_into(count: int, hidden: bool, tmp_path: Path) -> None:
    headers = {f"unit/a{number}.h": "int a;" for number in range(count)}
    text = "".join(f'#include "a{number}.h"\n' for number in range(count))
    assert hides(tmp_path, text, headers) is hidden


# ---------------------------------------------------------------------- preludes


def test_large_libraries_at_the_beginning_are_in_the_prelude() -> None:
    names = ["thrust/sort.h", "cub/cub.cuh", "cuda/std/array", "cute/tensor.hpp", "cutlass/gemm.h"]
    text = "".join(f"#include <{name}>\n" for name in [*names, "vector", "mycub/x.h", *names])
    assert eligibility.extras(text) == tuple(sorted(names))
    assert eligibility.extras(f"int a;\n{text}") == ()


OF_THE_TOOLKIT = [
    "cub/cub.cuh", "thrust/sort.h", "cuda/std/array", "cooperative_groups/reduce.h", "nv/target",
    "crt/mma.h",
    "cuda.h", "cuda_runtime.h", "cuda_fp16.h", "device_launch_parameters.h", "vector_types.h",
    "math_constants.h",
    "sm_20_intrinsics.h", "my_intrinsics.h", "mma.h", "cooperative_groups.h", "driver_types.h",
    "curand_kernel.h",
    "curand.h", "sm_61.h", "vector", "type_traits", "stdio.h", "stdlib.h", "stdint.h", "stddef.h",
    "stdarg.h",
    "stdbool.h", "string.h", "math.h", "float.h", "limits.h", "inttypes.h", "errno.h", "time.h",
]  # fmt: skip
OTHERS = [
    "mine.h", "mine/cuda.h", "cub", "cub/", "Vector", "cuda_fp16.cuh", "std.h", "stdx.h",
    "assert.h", "signal.h",
    "my/vector", "cublas_v2.h", "torch/types.h", "device.h", "cuda-x.h", "_intrinsics.h", "vector2",
    "sm_.h",
]  # fmt: skip


@pytest.mark.parametrize("name", OF_THE_TOOLKIT)
def test_a_header_of_the_toolkit_may_be_in_a_prelude(name: str) -> None:
    text = f"#include <cuda.h>\n#include <{name}>\n#include <mine.h>\n#include <vector>\nint a;\n"
    assert eligibility.toolkits(text) == ("cuda.h", name)
    assert eligibility.toolkits(f"#include <{name}>\n") == (name,)


@pytest.mark.parametrize("name", [name for name in OTHERS if name not in ("cub",)])
def test_another_header_ends_the_prelude(name: str) -> None:
    assert eligibility.toolkits(f"#include <vector>\n#include <{name}>\n#include <map>\n") == (
        "vector",
    )


KNOWN = frozenset(("/t/torch/types.h", "/c/cuda.h", "/usr/include/c++/12/vector", "/t/ATen/ATen.h"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("#include <torch/types.h>\n#include <cuda.h>\nint a;", ("torch/types.h", "cuda.h")),
        ("#include <torch/types.h>\n#include <own.h>\n#include <vector>\n", ("torch/types.h",)),
        ("#include <own.h>\n#include <torch/types.h>\n", ()),
        ("#include <vector>\nint a;\n#include <ATen/ATen.h>\n", ("vector",)),
        ("#include <vector>\nint a;\n#include <ATen/ops/add.h>\n", None),
        ("#include <vector>\n#include <own.h>\n#include <torch/extension.h>\n", None),
        ("#include <torch/extension.h>\n#include <vector>\n", ("torch/extension.h",)),
        ("#include <cuda_fp16.h>\n#include <torch/extension.h>\n", ("torch/extension.h",)),
        ("#include <torch/extension.h>\n#include <torch/nn.h>\n", ("torch/extension.h",)),
        ("#include <ATen/ATen.h>\n#include <torch/extension.h>\n", ("torch/extension.h",)),
        ("#include <types.h>\n", ("types.h",)),
        ("#include <orch/types.h>\n#include <ypes.h>\n", ()),
        ("int a;\n", ()),
    ],
)
def test_a_prelude_is_what_the_hosts_prelude_has_read(
    text: str, found: tuple[str, ...] | None
) -> None:
    assert eligibility.block(text, KNOWN) == found

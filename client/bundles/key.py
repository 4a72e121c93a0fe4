"""The key of a call on any machine: what the caller asked for, without where and by what.

Unlike the daemon's keys it has no paths, compilers or dates. What it leaves out is checked when an
artifact is taken (torch, Python, headers, GPUs), or cannot change what the code does.
docs/internals/decisions.md has the reasons.
"""

from __future__ import annotations

import os
import re
from typing import Any

from warmcc import digest
from warmcc.request import Request

KEYED = (
    "call", "module_name", "cpp_sources", "cuda_sources", "sycl_sources", "extra_cflags",
    "extra_cuda_cflags", "extra_sycl_cflags", "extra_ldflags", "with_cuda", "with_sycl",
    "is_python_module", "is_standalone", "with_pytorch_error_handling", "no_implicit_headers",
)  # fmt: skip
# In the key in another form: names and contents of ``sources``, the number of include paths, and
# some variables
OTHERWISE = ("sources", "functions", "extra_include_paths", "environment")
# What does not change the result, or is checked beside the key
LEFT_OUT = (
    "name", "interpreter", "build_directory", "verbose", "keep_intermediates", "use_pch",
)  # fmt: skip

VARIABLES = (
    "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "LD_RUN_PATH",
    "PYTORCH_ROCM_ARCH", "TORCH_XPU_ARCH_LIST",
)  # fmt: skip
_SEARCHED = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH")
_TOOLKIT = re.compile(r"/usr/local/cuda(?:-[\d.]+)?(?:/.*)?")  # as CUDA_HOME, it does not count
CUDA_VARIABLES = (
    "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CUDA_INC_PATH", "CUDNN_HOME", "CUDNN_PATH",
)  # fmt: skip
# The options in them count, the compiler does not
COMPILERS = ("CC", "CXX", "PYTORCH_NVCC", "NVCC_CCBIN")
# Where tools and libraries are, which GPUs there are, and dates
VARIABLES_LEFT_OUT = (
    "PATH", "LD_LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "SDKROOT", "CONDA_BUILD_SYSROOT",
    "CUDA_HOME", "CUDA_PATH", "ROCM_HOME", "ROCM_PATH", "TORCH_CUDA_ARCH_LIST",
    "CUDA_VISIBLE_DEVICES", "SOURCE_DATE_EPOCH", "TORCH_DONT_CHECK_COMPILER_ABI",
    "TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES",
)  # fmt: skip

_SHOWN = (
    "module_name", "extra_cflags", "extra_cuda_cflags", "extra_ldflags", "functions", "with_cuda",
)  # fmt: skip
# From here on a word may have values of macros, which may be secrets
_MACRO = re.compile(r"((?:-D|--define-macro)\s*=?\s*\w+(?:\([^()]*\))?=).*|^(\w+=).*", re.S)
_LONGEST = 200


def values(request: Request, sources: dict[str, str]) -> dict[str, Any]:
    """What the key is made of, by name, without what is empty.
    ``sources``: the digests of the request's sources by their paths."""
    found = {name: getattr(request, name) for name in KEYED}
    functions = request.functions
    found["functions"] = list(functions.items()) if isinstance(functions, dict) else functions
    found["sources"] = [[os.path.basename(path), sources[path]] for path in request.sources]
    found["include paths"] = len(request.extra_include_paths)
    names = (*VARIABLES, *(CUDA_VARIABLES if is_cuda(request) else ()))
    for name in names:
        value = request.environment.get(name)
        found[f"variable {name}"] = _elsewhere(value) if name in _SEARCHED else value
    for name in COMPILERS:
        found[f"options in {name}"] = _options(request.environment.get(name, ""))
    return {name: value for name, value in found.items() if value}


def parts(found: dict[str, Any]) -> dict[str, str]:
    """The digest of each value."""
    return {name: digest.of_value(value) for name, value in found.items()}


def shown(found: dict[str, Any]) -> dict[str, str]:
    """The short values for people; macros have no values."""
    return {
        name: _shown(value)[:_LONGEST]
        for name, value in found.items()
        if name in _SHOWN or name.startswith(("variable", "options"))
    }


def _shown(value: Any) -> str:
    r"""A value as text.

    >>> _shown(["-O2", "-DKEY='s3cret'", "-D", "OTHER=s3cret"]), _shown("-DKEY=s3cret -O2")
    ("['-O2', '-DKEY=…', '-D', 'OTHER=…']", '-DKEY=…')
    """
    if isinstance(value, list):
        return str([_shown(one) if isinstance(one, str) else one for one in value])
    return _MACRO.sub(r"\1\2…", value) if isinstance(value, str) else str(value)


def _elsewhere(folders: str | None) -> str | None:
    """The folders of a variable that are not the CUDA toolkit's: images with nvcc name its stubs in
    LIBRARY_PATH, and images without a compiler have no such variable.

    >>> _elsewhere("/usr/local/cuda/lib64/stubs"), _elsewhere("/opt/lib:/usr/local/cuda-13.0/lib64")
    (None, '/opt/lib')
    """
    if not folders:
        return folders
    kept = [folder for folder in folders.split(":") if not _TOOLKIT.fullmatch(folder)]
    return (":".join(kept) or ":") if kept else None


def is_cuda(request: Request) -> bool:
    """Whether nvcc compiles a part of it."""
    return bool(request.with_cuda or request.cuda_sources) or any(
        source.endswith((".cu", ".cuh")) for source in request.sources
    )


def _options(compiler: str) -> list[str]:
    """The words of a compiler's variable from the first option on.

    >>> _options("ccache g++ -DX -m64"), _options("clang++")
    (['-DX', '-m64'], [])
    """
    words = compiler.split()
    first = next((at for at, word in enumerate(words) if word.startswith("-")), len(words))
    return words[first:]

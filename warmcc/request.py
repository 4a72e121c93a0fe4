"""What a caller wants built, typed and validated.
The arguments of stock's ``load`` and ``load_inline`` plus the parts of the caller's world that a
build depends on.

A request is what the client sends and what the request key digests. Paths are absolute (the client
resolved them against the caller's working directory, as stock does).
"""

import os
from typing import Annotated, Literal

import msgspec

# What the result depends on: read by stock's flag logic, by the compiler driver or by the linker. A
# change misses.
KEYED_ENVIRONMENT = (
    "CC", "CXX", "PATH", "LD_LIBRARY_PATH", "LD_RUN_PATH", "CPATH", "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "SOURCE_DATE_EPOCH",
    "SDKROOT", "CONDA_BUILD_SYSROOT", "CUDA_HOME", "CUDA_PATH", "CUDA_INC_PATH", "CUDNN_HOME",
    "CUDNN_PATH", "PYTORCH_NVCC", "TORCH_CUDA_ARCH_LIST", "CUDA_VISIBLE_DEVICES",
    "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "ROCM_HOME", "ROCM_PATH",
    "PYTORCH_ROCM_ARCH", "TORCH_XPU_ARCH_LIST", "TORCH_DONT_CHECK_COMPILER_ABI",
    "TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES",
)  # fmt: skip

# What a build uses without its result depending on it: how fast, where temporary files go, in which
# language.
PASSED_ENVIRONMENT = (
    "HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "LANG", "LC_ALL", "LC_MESSAGES", "MAX_JOBS",
    "TORCH_EXTENSIONS_DIR", "TORCH_NO_COMPILER_WRAPPER",
    "CCACHE_DIR", "CCACHE_CONFIGPATH", "CCACHE_DISABLE", "CCACHE_MAXSIZE", "CCACHE_REMOTE_STORAGE",
    "CCACHE_REMOTE_ONLY", "CCACHE_RESHARE", "CCACHE_READONLY", "CCACHE_TEMPDIR", "CCACHE_UMASK",
)  # fmt: skip

_LINKS = 40  # the kernel follows no more

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class Interpreter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The Python that will load the result, and the torch that it has.

    ``abi`` is the suffix of extension modules (``.cpython-311-x86_64-linux-gnu.so``); ``torch_dir``
    the folder of the torch package; ``torch_loaded`` the version that is imported already, or None.
    """

    executable: str
    abi: str
    torch_dir: str
    torch_loaded: str | None = None


def one_name(executable: str) -> str:
    """One name for all names of an interpreter: links are followed as long as they stay in its
    folder, as ``python`` and ``python3`` of an environment do."""
    folder = os.path.dirname(executable)
    for _ in range(_LINKS):
        target = os.readlink(executable) if os.path.islink(executable) else ""
        if not target or os.path.dirname(target) not in ("", folder):
            break
        executable = os.path.join(folder, os.path.basename(target))
    return executable


_USUAL = {"CC": "cc", "CXX": "c++", "PYTORCH_NVCC": "nvcc"}


def without_launcher(environment: dict[str, str]) -> dict[str, str]:
    """Variables whose compilers are named without ``warmcc`` in front; not at all where these are
    the usual ones.

    >>> without_launcher({"CXX": "/v/bin/warmcc g++-12 -m64", "CC": "warmcc cc", "PATH": "/bin"})
    {'CXX': 'g++-12 -m64', 'PATH': '/bin'}
    """
    found = dict(environment)
    for name, usual in _USUAL.items():
        first, _, rest = found.get(name, "").strip().partition(" ")
        if os.path.basename(first) == "warmcc" and rest:
            found[name] = rest.strip()
            if found[name] == usual:
                del found[name]
    return found


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One call of ``load`` or ``load_inline``, or one source to ``compile`` to an object.
    Field names and meanings are stock torch's.

    ``sources`` holds the absolute paths of a ``load``; ``cpp_sources``, ``cuda_sources`` and
    ``sycl_sources`` the texts of a ``load_inline``. ``module_name`` is ``name``, or ``name_vN``
    when the calling process has loaded something else under that name before, as stock does.

    To ``compile``: ``sources`` holds one path, ``extra_cflags`` (for nvcc ``extra_cuda_cflags``)
    all flags, as a build.ninja has them, and ``build_directory`` is where the compiler runs.
    ``name`` and ``module_name`` are the object's.
    """

    call: Literal["load", "load_inline", "compile"]
    name: Name
    module_name: Name
    interpreter: Interpreter
    environment: dict[str, str]
    sources: list[str] = []
    cpp_sources: list[str] = []
    cuda_sources: list[str] = []
    sycl_sources: list[str] = []
    functions: list[str] | dict[str, str] | None = None
    extra_cflags: list[str] = []
    extra_cuda_cflags: list[str] = []
    extra_sycl_cflags: list[str] = []
    extra_ldflags: list[str] = []
    extra_include_paths: list[str] = []
    build_directory: str | None = None
    verbose: bool = False
    with_cuda: bool | None = None
    with_sycl: bool | None = None
    is_python_module: bool = True
    is_standalone: bool = False
    with_pytorch_error_handling: bool = True
    keep_intermediates: bool = True
    use_pch: bool = False
    no_implicit_headers: bool = False


Compiler = Literal["nvrtc", "nvcc", "cc", "c++"]


class KernelRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One text to compile without torch's headers: CUDA kernels (``nvrtc``, ``nvcc``) to a cubin,
    or C functions (``cc``, ``c++``) to a shared object.

    ``file`` is what messages call the source, and ``folder`` where it lies if it is a file;
    ``include_dirs`` are the caller's folders of headers and ``system_dirs`` the toolkit's, all
    absolute, searched in this order. ``names`` are the name expressions whose lowered names the
    answer shall have, ``arch`` is like ``sm_90a``, ``library`` the path of libnvrtc.
    """

    name: Name
    compiler: Compiler
    source: str
    file: str
    interpreter: Interpreter
    environment: dict[str, str]
    folder: str | None = None
    options: list[str] = []
    include_dirs: list[str] = []
    system_dirs: list[str] = []
    names: list[str] = []
    arch: str = ""
    library: str = ""
    call: Literal["kernel"] = "kernel"

    @property
    def module_name(self) -> str:
        return self.name

    @property
    def verbose(self) -> bool:
        return False

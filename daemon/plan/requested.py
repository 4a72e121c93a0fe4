"""How a request is built, read from it: variables, folders, and whether nvcc has work to do."""

from __future__ import annotations

import os
import re
import tempfile
from typing import Any

import msgspec

from warmcc.daemon.toolchain import cuda as toolkit
from warmcc.daemon.toolchain import nvcc_flags, processor
from warmcc.daemon.toolchain.flags import relative_paths
from warmcc.request import KEYED_ENVIRONMENT, PASSED_ENVIRONMENT, Request

# What only nvcc, or stock's flags for it, depend on; and what stock has turned into flags when a
# compiler runs.
_OF_NVCC = {
    "TORCH_CUDA_ARCH_LIST", "CUDA_VISIBLE_DEVICES", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS",
    "NVCC_CCBIN",
}  # fmt: skip
# Which program compiles C++: the identity of the toolchain says it, whatever its name. nvcc is told
# of CC, and of the name.
_OF_COMMANDS = {"CXX"}
NVCC_FLAGS = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
_FOR_THIS = re.compile(r"-m\w+=native")
_DEBUGS = re.compile(r"(?:^|[=,])-(?:g(?!0|en|c|pu)|-debug$)")
PROCESSOR = "(processor)"  # beside the variables, where it matters
CUDA_HOME = "(CUDA home)"  # what stock finds by the variables, and in PATH
_IN_FLAGS = {"TORCH_CUDA_ARCH_LIST", "PYTORCH_ROCM_ARCH", "TORCH_XPU_ARCH_LIST", CUDA_HOME}


def keyed_environment(request: Request) -> dict[str, str]:
    """The caller's variables that the result may depend on.

    PATH is where compilers are found, and the toolchain's identity says which were; stock itself
    looks there for CUDA's home alone, and it is that which counts. Which GPUs are visible matters
    where none are named.
    """
    found = {
        name: request.environment[name] for name in KEYED_ENVIRONMENT if name in request.environment
    }
    if _is_for_this_processor(request):
        found[PROCESSOR] = processor.identity()
    found.pop("PATH", None)
    if request.with_cuda:
        found[CUDA_HOME] = toolkit.home(request.environment) or ""
    if not (request.with_cuda or with_cuda(request)):
        return {name: value for name, value in found.items() if name not in _OF_NVCC}
    if "TORCH_CUDA_ARCH_LIST" in found and not _has_native(request):
        found.pop("CUDA_VISIBLE_DEVICES", None)
    return found


def compile_environment(
    request: Request, *, nvcc: bool, flags: str | None = None
) -> dict[str, str]:
    """The variables that a compile may depend on.
    ``flags`` are those of the one that is meant, where they are known. Workers with a GPU each
    share what g++ made."""
    found = keyed_environment(request)
    dropped = _IN_FLAGS | _OF_COMMANDS if nvcc else _IN_FLAGS | _OF_COMMANDS | _OF_NVCC | {"CC"}
    if flags is not None and not any(
        _FOR_THIS.search(text) for text in (flags, *values(request, "CC", "CXX"))
    ):
        dropped = dropped | {PROCESSOR}
    if not _has_native(request):
        dropped = dropped | {"CUDA_VISIBLE_DEVICES"}
    return {name: value for name, value in found.items() if name not in dropped}


def _has_native(request: Request) -> bool:
    """Whether a flag may have nvcc itself ask the GPUs."""
    return any(
        "native" in text for text in (*request.extra_cuda_cflags, *values(request, *NVCC_FLAGS))
    )


def _is_for_this_processor(request: Request) -> bool:
    """Whether a flag has the C++ compiler build for the processor that it runs on."""
    variables = values(request, "CC", "CXX", *NVCC_FLAGS)
    return any(
        _FOR_THIS.search(text)
        for text in (*request.extra_cflags, *request.extra_cuda_cflags, *variables)
    )


def values(request: Request, *names: str) -> list[str]:
    return [request.environment.get(name, "") for name in names]


def build_environment(request: Request) -> dict[str, str]:
    """The environment of the compilers: the allow-list of the caller's variables and nothing else.

    Messages are in English, because diagnostics are read from them.
    """
    names = (*KEYED_ENVIRONMENT, *PASSED_ENVIRONMENT)
    found = {name: request.environment[name] for name in names if name in request.environment}
    found.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    for name in ("LC_MESSAGES", "LANG"):
        found.pop(name, None)
    found["LC_ALL"] = "C.UTF-8"
    found["TMPDIR"] = tempfile.gettempdir()  # the daemon's own
    return found


def user_flags(request: Request) -> str:
    return " ".join([*request.extra_cflags, *request.extra_cuda_cflags, *request.extra_ldflags])


def with_cuda(request: Request) -> bool:
    """Whether nvcc has something to compile."""
    return bool(request.cuda_sources) or any(
        source.endswith((".cu", ".cuh")) for source in request.sources
    )


def workdir(request: Request) -> str | None:
    """The directory that relative names in flags refer to, and that ``-g`` writes into an object:
    stock's build directory.

    None when no flag can name a relative path, or the caller gave no directory to name one in.
    """
    if not request.build_directory:
        return None
    is_relative = relative_paths(" ".join([*request.extra_cflags, *request.extra_ldflags]))
    is_relative = is_relative or nvcc_flags.relative_paths(" ".join(request.extra_cuda_cflags))
    is_relative = is_relative or (request.call == "compile" and _debugs(request))
    return request.build_directory if is_relative else None


def _debugs(request: Request) -> bool:
    """Whether an object says in which directory it was compiled."""
    words = " ".join([*request.extra_cflags, *request.extra_cuda_cflags]).split()
    return any(_DEBUGS.search(word) for word in words)


_QUOTED_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[^<\s]", re.M)


def home(request: Request) -> str | None:
    """The folder of an inline source, searched first for quoted includes: stock's main.cpp.

    None when nothing is included in quotes, or the caller named no build directory.
    """
    if not any(
        _QUOTED_INCLUDE.search(text) for text in (*request.cpp_sources, *request.cuda_sources)
    ):
        return None
    root = request.environment.get("TORCH_EXTENSIONS_DIR")
    return request.build_directory or (os.path.join(root, request.name) if root else None)


def search_environment(request: Request) -> dict[str, str]:
    """The caller's variables that name folders in which compilers and linkers look."""
    return {
        name: value
        for name, value in request.environment.items()
        if name in KEYED_ENVIRONMENT and value
    }


def to_keep(request: Request) -> Any:
    """A request as plain values, for the store: with the variables that results depend on, and
    without the others, which may hold secrets (ccache's remote storage)."""
    names = {*KEYED_ENVIRONMENT, "TORCH_EXTENSIONS_DIR"}
    environment = {name: value for name, value in request.environment.items() if name in names}
    return msgspec.to_builtins(msgspec.structs.replace(request, environment=environment))

"""The two keys: what makes two requests, and two units, the same.

The request key digests everything the caller sent that the result can depend on, and the toolchain's identity. What
the compilers read is not in it: each known result carries the closure of its dependencies, checked at every hit.
"""

from __future__ import annotations

import os
import re
import tempfile
from typing import Any

from warmcc import digest
from warmcc.daemon.plan import validation
from warmcc.daemon.system.redact import redacted
from warmcc.daemon.toolchain import Toolchain, processor
from warmcc.daemon.toolchain import cuda as toolkit
from warmcc.daemon.toolchain import nvcc_flags as cuda_flags
from warmcc.daemon.toolchain.comments import may_be_left_out, without_comments
from warmcc.daemon.toolchain.flags import relative_paths, unkeyable
from warmcc.request import KEYED_ENVIRONMENT, PASSED_ENVIRONMENT, Request

GENERATION = 5  # raised when what the daemon makes of an equal request changes

# Not in the key: they change what is shown or where copies go, not what is built. build_directory and PATH come back
# in where they matter; the interpreter's torch_loaded is checked, not keyed; use_pch only asks stock for speed.
_NOT_KEYED = {"environment", "interpreter", "build_directory", "verbose", "keep_intermediates", "use_pch", "name"}


# What only nvcc, or stock's flags for it, depend on; and what stock has turned into flags when a compiler runs.
_OF_NVCC = {"TORCH_CUDA_ARCH_LIST", "CUDA_VISIBLE_DEVICES", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"}
_NVCC_FLAGS = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
_FOR_THIS = re.compile(r"-m\w+=native")
PROCESSOR = "(processor)"  # beside the variables, where it matters
CUDA_HOME = "(CUDA home)"  # what stock finds by the variables, and in PATH
_IN_FLAGS = {"TORCH_CUDA_ARCH_LIST", "PYTORCH_ROCM_ARCH", "TORCH_XPU_ARCH_LIST", CUDA_HOME}


def keyed_environment(request: Request) -> dict[str, str]:
    """The caller's variables that the result may depend on.

    PATH is where compilers are found, and the toolchain's identity says which were; stock itself looks there for CUDA's
    home alone, and it is that which counts. Which GPUs are visible matters where nobody says for which to build.
    """
    found = {name: request.environment[name] for name in KEYED_ENVIRONMENT if name in request.environment}
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


def compile_environment(request: Request, *, nvcc: bool) -> dict[str, str]:
    """Those that what a compiler makes of given flags may depend on: workers with a GPU each share what g++ made."""
    found = keyed_environment(request)
    dropped = _IN_FLAGS if nvcc else _IN_FLAGS | _OF_NVCC
    if not _has_native(request):
        dropped = dropped | {"CUDA_VISIBLE_DEVICES"}
    return {name: value for name, value in found.items() if name not in dropped}


def _has_native(request: Request) -> bool:
    """Whether a flag may have nvcc itself ask the GPUs."""
    return any("native" in text for text in (*request.extra_cuda_cflags, *_variables(request, *_NVCC_FLAGS)))


def _is_for_this_processor(request: Request) -> bool:
    """Whether a flag has the C++ compiler build for the processor that it runs on."""
    variables = _variables(request, "CC", "CXX", *_NVCC_FLAGS)
    return any(_FOR_THIS.search(text) for text in (*request.extra_cflags, *request.extra_cuda_cflags, *variables))


def _variables(request: Request, *names: str) -> list[str]:
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
    return bool(request.cuda_sources) or any(source.endswith((".cu", ".cuh")) for source in request.sources)


def workdir(request: Request) -> str | None:
    """The directory that relative names in flags refer to: stock runs its commands in the build directory.

    None when no flag can name a relative path, or the caller gave no directory to name one in.
    """
    return request.build_directory if request.build_directory and relative_paths(user_flags(request)) else None


_QUOTED_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[^<\s]", re.M)


def home(request: Request) -> str | None:
    """The folder in which an inline source looks first for what it includes in quotes: stock's main.cpp lies there.

    None when nothing is included in quotes, or the caller named no build directory.
    """
    if not any(_QUOTED_INCLUDE.search(text) for text in (*request.cpp_sources, *request.cuda_sources)):
        return None
    root = request.environment.get("TORCH_EXTENSIONS_DIR")
    return request.build_directory or (os.path.join(root, request.name) if root else None)


def why_declined(request: Request) -> tuple[str, bool] | None:
    """Why this request is left to stock: (reason, is that by design?), or None."""
    if (reason := validation.why_not(request)) is not None:
        return reason, True
    suffixes = {source.rsplit(".", 1)[-1] for source in request.sources}
    if "hip" in suffixes:
        return "HIP sources", True
    if with_cuda(request):
        variables = (request.environment.get(f"NVCC_{name}_FLAGS", "") for name in ("PREPEND", "APPEND"))
        if (reason := cuda_flags.unkeyable([*request.extra_cuda_cflags, *variables])) is not None:
            return f"flags for nvcc that are not understood: {reason}", True
        if os.sep in request.environment.get("CC", "") and os.path.isdir(request.environment["CC"]):
            return "CC names a folder", True
    if request.with_sycl or request.sycl_sources or "sycl" in suffixes:  # stock runs a SYCL compiler to plan them
        return "SYCL sources", True
    for flags in (request.extra_cflags, request.extra_ldflags):
        if reason := unkeyable(" ".join(flags)):
            return f"flags that cannot be keyed: {reason}", True
    return None


def request_key(request: Request, toolchain: Toolchain) -> str:
    """The digest under which results of this request are kept."""
    return digest.of_value([GENERATION, _parts(request, toolchain)])


def _parts(request: Request, toolchain: Toolchain) -> dict[str, Any]:
    """All that a request's result depends on, by name."""
    parts = {name: getattr(request, name) for name in request.__struct_fields__ if name not in _NOT_KEYED}
    if isinstance(request.functions, dict):
        parts["functions"] = list(request.functions.items())  # the order is the order of the bindings
    return {
        **parts,
        "Python": [request.interpreter.executable, request.interpreter.abi],
        "torch": request.interpreter.torch_dir,
        "environment": keyed_environment(request),
        "folder of relative paths": workdir(request),
        "folder of quoted includes": home(request),
        "toolchain": toolchain.digest,
        "CUDA toolkit": toolchain.cuda.digest if toolchain.cuda else None,
    }


def readable(request: Request, toolchain: Toolchain) -> dict[str, str]:
    """The same for people, empty ones left out: long values are digests, variables stand by themselves, and macros
    have no values."""
    parts = _parts(request, toolchain)
    variables = {f"variable {name}": value for name, value in parts.pop("environment").items()}
    told = {
        name: redacted(value if isinstance(value, str) else str(value))
        for name, value in (parts | variables).items()
        if value
    }
    return {name: text if len(text) <= 100 else f"sha256 {digest.of_value(text)[:12]}" for name, text in told.items()}


def search_environment(request: Request) -> dict[str, str]:
    """The caller's variables that name folders in which compilers and linkers look."""
    return {name: value for name, value in request.environment.items() if name in KEYED_ENVIRONMENT and value}


def unit_key(
    cflags: str, post_cflags: str, source: str, text: str | None, request: Request, toolchain: Toolchain
) -> str:
    """The digest under which objects of one unit are kept: ``text`` for an inline source, the path for a file.

    An edit of comments alone finds the object that there is.
    """
    content = ["text", _as_compiled(text, request)] if text is not None else ["file", source]
    nvcc = source.endswith((".cu", ".cuh"))
    return digest.of_value(
        [
            GENERATION,
            content,
            cflags,
            post_cflags,
            compile_environment(request, nvcc=nvcc),
            workdir(request),
            home(request),
            toolchain.digest,
            toolchain.cuda.digest if toolchain.cuda is not None and nvcc else None,
        ]
    )


def _as_compiled(text: str, request: Request) -> str:
    flags = (*request.extra_cflags, *request.extra_cuda_cflags, *_variables(request, *_NVCC_FLAGS))
    return without_comments(text) if may_be_left_out(flags) else text


def unpublished_key(key: str) -> str:
    """A key under which nobody will ask: for a result that its caller gets and nobody else."""
    return digest.of_value([key, "unpublished", os.urandom(16)])

"""The two keys: what makes two requests, and two units, the same.

The request key digests everything the caller sent that the result can depend on, and the
toolchain's identity. What the compilers read is not in it: each known result carries the closure of
its dependencies, checked at every hit.
"""

from __future__ import annotations

import os
from typing import Any

from warmcc import digest
from warmcc.daemon.plan import requested
from warmcc.daemon.system.redact import redacted
from warmcc.daemon.toolchain import Toolchain
from warmcc.daemon.toolchain.comments import may_be_left_out, without_comments
from warmcc.request import Request

GENERATION = 7  # raised when what the daemon makes of an equal request changes

# Not in the key: they change what is shown or where copies go, not what is built. build_directory
# and PATH come back in where they matter; the interpreter's torch_loaded is checked, not keyed;
# use_pch only asks stock for speed.
_NOT_KEYED = {
    "environment", "interpreter", "build_directory", "verbose", "keep_intermediates", "use_pch",
    "name",
}  # fmt: skip


def request_key(request: Request, toolchain: Toolchain) -> str:
    """The digest under which results of this request are kept."""
    return digest.of_value([GENERATION, _parts(request, toolchain)])


def _parts(request: Request, toolchain: Toolchain) -> dict[str, Any]:
    """All that a request's result depends on, by name."""
    parts = {
        name: getattr(request, name) for name in request.__struct_fields__ if name not in _NOT_KEYED
    }
    if isinstance(request.functions, dict):
        # The order is the order of the bindings
        parts["functions"] = list(request.functions.items())
    return {
        **parts, "Python": [request.interpreter.executable, request.interpreter.abi],
        "torch": request.interpreter.torch_dir, "environment": requested.keyed_environment(request),
        "folder of relative paths": requested.workdir(request),
        "folder of quoted includes": requested.home(request), "toolchain": toolchain.digest,
        "CUDA toolkit": toolchain.cuda.digest if toolchain.cuda else None,
    }  # fmt: skip


def readable(request: Request, toolchain: Toolchain) -> dict[str, str]:
    """The key's inputs for people, without empty ones.
    Long values are digests, variables stand by themselves, and macros have no values."""
    parts = _parts(request, toolchain)
    variables = {f"variable {name}": value for name, value in parts.pop("environment").items()}
    told = {
        name: redacted(value if isinstance(value, str) else str(value))
        for name, value in (parts | variables).items()
        if value
    }
    return {
        name: text if len(text) <= 100 else f"sha256 {digest.of_value(text)[:12]}"
        for name, text in told.items()
    }


def unit_key(
    cflags: str, post_cflags: str, source: str, text: str | None, request: Request,
    toolchain: Toolchain,
) -> str:  # fmt: skip
    """The key of one unit's objects.
    ``text`` for an inline source, the path for a file.

    An edit of comments alone finds the object that there is.
    """
    nvcc = source.endswith((".cu", ".cuh"))
    content = ["file", source]
    if text is not None:
        given = _of_nvcc(request) if nvcc else [cflags, post_cflags]
        content = ["text", without_comments(text) if may_be_left_out(given) else text]
    flags = None if nvcc else f"{cflags} {post_cflags}"
    return digest.of_value(
        [
            GENERATION, content, cflags, post_cflags,
            requested.compile_environment(request, nvcc=nvcc, flags=flags),
            requested.workdir(request),
            requested.home(request), toolchain.digest,
            toolchain.cuda.digest if toolchain.cuda is not None and nvcc else None,
        ]
    )  # fmt: skip


def _of_nvcc(request: Request) -> list[str]:
    """The flags that reach nvcc."""
    return [*request.extra_cuda_cflags, *requested.values(request, *requested.NVCC_FLAGS)]


def unpublished_key(key: str) -> str:
    """A key that no request has: for a result that only its caller gets."""
    return digest.of_value([key, "unpublished", os.urandom(16)])

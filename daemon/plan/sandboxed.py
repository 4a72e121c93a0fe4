"""Refuse requests that name what the sandbox cannot read (``system/sandbox.py``)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from itertools import pairwise

from warmcc.daemon.plan import requested
from warmcc.daemon.system.sandbox import Sandbox
from warmcc.daemon.toolchain.flags import folders, split
from warmcc.request import Request

# Variables that name a program or its folder
_PROGRAMS = "CC", "CXX", "CUDA_HOME", "CUDA_PATH", "PYTORCH_NVCC"
_NAMES_FILE = ("-include", "-imacros", "--sysroot", "-isysroot", "-iprefix", "-imultilib")


class Unreadable(Exception):
    """A request names what builds here may not read; the text says what, and what to do."""


def refused(sandbox: Sandbox, request: Request) -> str | None:
    """What a request names that the sandbox may not read, and the remedy; None for nothing."""
    for what, path in _named(request):
        if not sandbox.may_read(path):
            return (
                f"{path} ({what}) cannot be read in this daemon's sandbox; use a path below "
                "sandbox_roots, or have its folder added to them in the daemon's configuration"
            )
    return None


def _named(request: Request) -> Iterator[tuple[str, str]]:
    """The paths in a request, each with the name of what it stands in."""
    interpreter = request.interpreter
    # An environment's own, beside which its files are
    yield ("the interpreter", os.path.dirname(interpreter.executable))
    yield "the interpreter", interpreter.executable
    yield "torch", interpreter.torch_dir
    yield from (("sources", path) for path in request.sources)
    yield from (("extra_include_paths", path) for path in request.extra_include_paths)
    workdir, home = requested.workdir(request), requested.home(request)
    for name in ("extra_cflags", "extra_cuda_cflags", "extra_ldflags"):
        with contextlib.suppress(
            ValueError
        ):  # a quote is not closed: that is for the compiler to say
            words = split(" ".join(getattr(request, name)))
            paths = [
                path if workdir is None else os.path.join(workdir, path)
                for path in _of_flags(words)
            ]
            yield from ((name, path) for path in paths if os.path.isabs(path))
    yield from (("build_directory", path) for path in (workdir, home) if path is not None)
    for name in _PROGRAMS:
        yield from (
            (name, word)
            for word in request.environment.get(name, "").split()
            if os.path.isabs(word)
        )


def _of_flags(words: list[str]) -> list[str]:
    """The paths that flags name."""
    found = [*folders(words), *(word[2:] for word in words if word.startswith("-L")), *words]
    after = [value for option, value in pairwise(words) if option in (*_NAMES_FILE, "-L")]
    joined = [
        word.partition("=")[2]
        for word in words
        if word.startswith(tuple(f"{name}=" for name in _NAMES_FILE))
    ]
    return [path for path in (*found, *after, *joined) if path and not path.startswith("-")]

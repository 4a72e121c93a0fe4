"""The compilers of a request, as far as a client knows them: to tell whether a result of before
still is what would be built, and what a package was built with.
"""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess
from typing import Any

from warmcc import digest
from warmcc.client.bundles import key
from warmcc.client.bundles.torch_look import torch_look
from warmcc.request import KEYED_ENVIRONMENT, Request

_SECONDS = 20.0
_HEADERS = ("-I", "-isystem", "-iquote", "-idirafter")
_PATHS = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
_MOST_NAMES = 20_000


def identity(request: Request) -> str:
    """A digest of what the result depends on beside the job and the files that it has read: Python,
    torch, compilers, the variables that matter, and the names of all files in the user's folders of
    headers, where a new one could take another's place."""
    python, known = request.interpreter, request.environment
    looks = [[path, *_look(path)] for path in _programs(request).values()]
    variables = sorted((name, known[name]) for name in KEYED_ENVIRONMENT if name in known)
    torch = [python.torch_dir, *torch_look(python.torch_dir)]
    names = [[folder, *_names(folder)] for folder in _folders(request)]
    return digest.of_value([python.executable, python.abi, torch, looks, variables, names])


def versions(request: Request) -> dict[str, str]:
    """What the compilers say of themselves, and Python's version, for people."""
    found = {name: _version(path, *_look(path)) for name, path in _programs(request).items()}
    return {"python": platform.python_version(), **found}


def _programs(request: Request) -> dict[str, str]:
    """The compilers' real paths by their usual names, where they are found."""
    known = request.environment
    path = known.get("PATH", os.defpath)
    wanted = {"c++": (known.get("CXX") or "c++").split()[0]}
    if key.is_cuda(request):
        home = known.get("CUDA_HOME") or known.get("CUDA_PATH") or ""
        wanted["nvcc"] = known.get("PYTORCH_NVCC") or (
            os.path.join(home, "bin", "nvcc")
            if home
            else shutil.which("nvcc", path=path) or "/usr/local/cuda/bin/nvcc"
        )
    found = {name: shutil.which(program, path=path) for name, program in wanted.items()}
    return {name: os.path.realpath(program) for name, program in found.items() if program}


def _folders(request: Request) -> list[str]:
    """The user's folders of headers."""
    words = [*request.extra_cflags, *request.extra_cuda_cflags]
    found = [*request.extra_include_paths]
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word in _HEADERS:
            found.append(following)
        elif word.startswith("-I"):
            found.append(word[2:])
    for name in _PATHS:
        found += filter(None, request.environment.get(name, "").split(os.pathsep))
    return found


def _names(folder: str) -> list[str]:
    """The names of all files in a folder, but for hidden folders, such as a draft; of a very large
    one something that is never the same, so that the daemon is asked."""
    found: list[str] = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += (os.path.join(place, name) for name in (*folders, *files))
        if len(found) > _MOST_NAMES:
            return [os.urandom(16).hex()]
    return sorted(found)


def _look(path: str) -> list[int]:
    try:
        found = os.stat(path)
    except OSError:
        return []
    return [found.st_size, found.st_mtime_ns]


@functools.cache
def _version(path: str, *_: Any) -> str:
    """The line that has the version."""
    try:
        done = subprocess.run(
            [path, "--version"],
            capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return next((line for line in lines if "release" in line), lines[0] if lines else "unknown")

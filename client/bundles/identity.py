"""What an artifact needs of a machine beside its sources, and what this machine has."""

from __future__ import annotations

import ctypes
import functools
import importlib.machinery
import json
import mmap
import os
import platform
import re
import subprocess
from typing import Any, NamedTuple

from warmcc.client.bundles import elf, gpus
from warmcc.client.bundles.layout import Needs
from warmcc.errors import BundleError
from warmcc.request import Interpreter, Request

_SECONDS = 300.0
# Another Python than this one may be meant. What it prints are fields of Needs, and torch's folder.
_PROBE = """
import importlib.machinery, json, os, platform
import torch, torch.version
print(json.dumps({
    "machine": platform.machine(), "abi": importlib.machinery.EXTENSION_SUFFIXES[0],
    "torch": str(torch.__version__), "torch_git": str(torch.version.git_version or ""),
    "cuda": str(torch.version.cuda or ""), "cxx11_abi": bool(torch._C._GLIBCXX_USE_CXX11_ABI),
    "torch_dir": os.path.dirname(torch.__file__),
}))
"""
_NATIVE = re.compile(r"-m\w+=native")
_ABILITY = re.compile(
    r"(?:sse|ssse|avx|amx|fma|f16c|bmi|abm|popcnt|movbe|aes|vaes|pclmul|vpclmul|sha|gfni|adx|"
    r"rdrand|rdseed|xsave|clwb|clflushopt|fsgsbase|lahf|3dnow|cx16|serialize|movdir|waitpkg|"
    r"rdpid|pku|ptwrite|tbm|xop|lzcnt|enqcmd|uintr|kl|widekl|hreset).*"
)


def of_interpreter(python: Interpreter, torch: list[int]) -> dict[str, Any]:
    """What Python and torch are that a request was built for, as fields of Needs. ``torch`` is what
    ``torch_look`` gives now.
    Runs that Python, and imports torch in it. Raises BundleError."""
    return _asked(python.executable, python.torch_dir, tuple(torch))


@functools.cache
def _asked(executable: str, torch_dir: str, _torch: tuple[int, ...]) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [executable, "-c", _PROBE],
            capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_SECONDS,
        )  # fmt: skip
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
        raise BundleError(f"{executable} does not say which torch it has: {error}") from None
    if (other := found.pop("torch_dir", None)) != torch_dir:
        raise BundleError(f"{executable} has torch in {other}, and not in {torch_dir} as the call")
    return found


def of_file(path: str, request: Request, commands: list[str], python: dict[str, Any]) -> Needs:
    """What an artifact needs; ``python`` is what ``of_interpreter`` found. Raises BundleError."""
    found = elf.read(path)
    flags = [
        *request.extra_cflags, *request.extra_cuda_cflags,
        *(request.environment.get(name, "") for name in ("CC", "CXX", "NVCC_PREPEND_FLAGS")),
        request.environment.get("NVCC_APPEND_FLAGS", ""),
    ]  # fmt: skip
    has_kernels = any("nvcc" in command for command in commands)
    return Needs(
        **{**python, "machine": found.machine}, symbols=found.symbols, search=found.search,
        processor=processor() if any(map(_NATIVE.search, flags)) else [],
        libraries=sorted(found.libraries),
        architectures=gpus.in_file(path, commands) if has_kernels else [],
    )  # fmt: skip


def of_data(python: dict[str, Any]) -> Needs:
    """What a file needs that is no library, made for this processor; as ``of_file``."""
    return Needs(**python, processor=processor())


def processor() -> list[str]:
    """The abilities of the processor that a compiler may use; none where the kernel names none."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return []
    if found := re.search(r"^flags\s*: (.*)$", text, re.M):
        return sorted(word for word in found[1].split() if _ABILITY.fullmatch(word))
    found = re.search(r"^Features\s*: (.*)$", text, re.M)
    return sorted(found[1].split()) if found else []


class Here(NamedTuple):
    """What Python, torch and the machine of this process are."""

    machine: str
    abi: str
    torch: str
    torch_git: str
    cuda: str
    cxx11_abi: bool
    glibc: str


@functools.cache
def here() -> Here:
    """Imports torch. Raises what that raises."""
    import torch
    import torch.version as version

    return Here(
        platform.machine(), importlib.machinery.EXTENSION_SUFFIXES[0], str(torch.__version__),
        str(version.git_version or ""), str(version.cuda or ""),
        bool(torch._C._GLIBCXX_USE_CXX11_ABI),
        os.confstr("CS_GNU_LIBC_VERSION") or "",
    )  # fmt: skip


_NAMES = {
    "machine": "machine", "abi": "Python", "torch": "torch", "torch_git": "torch's commit",
    "cuda": "torch's CUDA version", "cxx11_abi": "torch's C++11 ABI",
}  # fmt: skip


def mismatch(needs: Needs, found: Here) -> str:
    """What an artifact needs and this process has not; empty when it can be loaded here."""
    for name, words in _NAMES.items():
        wanted, own = getattr(needs, name), getattr(found, name)
        if wanted != own:
            there, here = (str(one) or "none" for one in (wanted, own))
            return f"{words}: it was built for {there}, here is {here}"
    return (
        _glibc(needs.symbols.get("GLIBC", ""), found.glibc)
        or _libstdcxx(needs.symbols)
        or _abilities(needs.processor)
        or (needs.architectures and gpus.mismatch(needs.architectures, needs.cuda, gpus.here()))
        or ""
    )


def _glibc(wanted: str, found: str) -> str:
    own = found.rpartition(" ")[2]
    try:
        is_here = not wanted or elf.as_numbers(wanted) <= elf.as_numbers(own)
    except ValueError:
        return f"glibc: it needs {wanted}, here is {found or 'another library'}"
    return "" if is_here else f"glibc: it needs {wanted}, here is {own}"


def _libstdcxx(symbols: dict[str, str]) -> str:
    loaded = mapped().items()
    path = next((path for name, path in loaded if name.startswith("libstdc++.so.6")), None)
    for name in ("GLIBCXX", "CXXABI"):
        version = symbols.get(name)
        if version and path is not None and not _has(path, f"{name}_{version}"):
            return f"libstdc++: it needs {name}_{version}, which {path} has not"
    return ""


@functools.cache
def _has(path: str, symbol: str) -> bool:
    """Whether a library defines a version. Where it cannot be read, its loader says so."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            return data.find(symbol.encode() + b"\0") >= 0
    except (OSError, ValueError):
        return True


def _abilities(wanted: list[str]) -> str:
    missing = sorted(set(wanted) - set(processor())) if wanted else []
    return (
        f"processor: it was built with -march=native for one with {' '.join(missing)}, which this "
        "one has not"
        if missing
        else ""
    )


def mapped() -> dict[str, str]:
    """The libraries that this process has loaded, by their names."""
    found = {}
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        for line in file:
            path = line.rstrip("\n").partition("/")[2]
            if ".so" in path:
                found[os.path.basename(path)] = f"/{path}"
    return found


_found: set[str] = set()


def missing_library(needs: Needs) -> str:
    """The first library that the dynamic loader does not find for an artifact; empty when there is
    none. It loads them, as it would for the artifact."""
    wanted = set(needs.libraries) - _found
    if not wanted or needs.search:
        return ""
    try:
        for name in sorted(wanted - mapped().keys()):
            ctypes.CDLL(name)
    except OSError as error:
        return f"library: {error}"
    _found.update(wanted)
    return ""

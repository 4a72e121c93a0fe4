"""What a shared machine's daemon refuses (``shared = true``): flags and variables that load code into a compiler, name
another one, or write elsewhere than into the build. In a daemon of one's own they go to stock torch, as ever.

A flag is taken when it has a form that is known to be harmless, and none that is known not to be.
"""

from __future__ import annotations

import os
import re

from warmcc.daemon.cuda import flags as cuda_flags
from warmcc.daemon.toolchain.flags import split, unkeyable
from warmcc.request import Request

_HARMLESS = re.compile(
    r"-O\w*|-[DU].+|-W(?!l,|a,|p,)[\w=+-]*|-w|-std=[\w+]+|-g\w*|-m[\w=,.+-]+|-f[\w-]+(?:=[\w-]+)?|-l[\w.+-]+|-ansi"
    r"|-pthread|-pipe|-rdynamic|-shared|-s|-v|-pedantic(?:-errors)?|-nostdinc\+\+"
    r"|-(?:I|L|isystem|iquote|idirafter)(?:/.*)?|/[^,]*"
    r"|-Wl,(?:--as-needed|--no-as-needed|--no-undefined|-z,(?:now|relro|defs|noexecstack)|--gc-sections|-O\d"
    r"|--strip-all|-s|--export-dynamic|-Bsymbolic(?:-functions)?|-rpath[,=]/[^,]*)"
)
_HARMFUL = re.compile(
    r"-fplugin.*|-fpass-plugin.*|-fdump-.*|-fprofile-.*|-fauto-profile.*|-fbranch-.*|-fcallgraph-info.*|-fstack-usage"
    r"|-fmodule.*|-fcompare-debug.*|-fdiagnostics-\w+-output.*|-fuse-ld=.*|-flto-.*|-fsave-optimization-record.*|-gsplit-.*"
    r"|-foffload.*|-mllvm.*|-save-temps.*|-fopt-info-.*|-ftest-coverage|-frandom-seed=.*|-fdeps-.*|-finput-.*"
)
_PASSES_ON = ("-Xcompiler", "--compiler-options")
# What puts other programs, or code, in a compiler's place.
_VARIABLES = (
    "GCC_EXEC_PREFIX", "COMPILER_PATH", "LD_LIBRARY_PATH", "LD_RUN_PATH", "PYTORCH_NVCC", "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS", "CCACHE_CONFIGPATH", "CCACHE_DIR", "CCACHE_REMOTE_STORAGE", "CPATH", "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH", "LIBRARY_PATH",
)  # fmt: skip
_PROGRAMS = ("CC", "CXX", "CUDA_HOME", "CUDA_PATH", "ROCM_HOME")
_SYSTEM = ("/usr/", "/opt/", "/bin/")


def refused(request: Request) -> str | None:
    """What of a request a shared daemon refuses, or None."""
    for name in _VARIABLES:
        if request.environment.get(name):
            return f"the variable {name}"
    for name in _PROGRAMS:
        if (reason := _program(request.environment.get(name, ""))) is not None:
            return f"the variable {name}: {reason}"
    if (reason := cuda_flags.unkeyable(request.extra_cuda_cflags)) is not None:
        return f"the flag {reason}"
    host = " ".join([*request.extra_cflags, *request.extra_ldflags])
    if (reason := unkeyable(host)) is not None:
        return f"the flag {reason}"
    words = split(host) + _handed_on(split(" ".join(request.extra_cuda_cflags)))
    found = next((word for word in words if not _HARMLESS.fullmatch(word) or _HARMFUL.fullmatch(word)), None)
    return f"the flag {found}" if found is not None else None


def _program(value: str) -> str | None:
    if "/" in value and not os.path.normpath(value).startswith(_SYSTEM):
        return f"{value} is not below {', '.join(_SYSTEM)}"
    return f"{value!r} is more than a program" if len(value.split()) > 1 else None


def _handed_on(words: list[str]) -> list[str]:
    """What nvcc hands on to the host's compiler: ``-Xcompiler a,b`` and ``-Xcompiler=a,b``."""
    found, after = [], False
    for word in words:
        name, equals, value = word.partition("=")
        if after:
            found += word.split(",")
        elif name in _PASSES_ON and equals:
            found += value.split(",")
        after = not after and word in _PASSES_ON
    return found

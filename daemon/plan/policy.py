"""What a daemon takes that builds what others wrote under one account (``shared = true``).

A request is taken when each of its fields, and each variable of its environment, passes the check
that the tables below name for it. What no table names is refused: a new field needs a row that says
what it may hold, or it cannot be used on a shared machine. A value that names a program to run, or
a place where one is looked for, has to be one that the machine's configuration names (``Machine``);
what a result does not depend on is not taken from the caller at all.

A flag is taken when it has a form that is known to be harmless, and none that is known not to be.
Flags are looked at twice: as the caller wrote them, and as stock put them together in its plan. In
a user's own daemon what is refused here is left to stock.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from typing import Any

import msgspec

from warmcc.daemon.plan import validation
from warmcc.daemon.plan.machine import Machine
from warmcc.daemon.plan.stock import Plan
from warmcc.daemon.toolchain import nvcc_flags as cuda_flags
from warmcc.daemon.toolchain.flags import split, unkeyable
from warmcc.protocol import Failed
from warmcc.request import Interpreter, Request

# Of a value: what is refused, as the end of "… refuses"; None when it may be used. It is told how
# the value is called.
Check = Callable[[Machine, str, Any], "str | None"]

_TEXT = r"[^\x00-\x1f\x7f-\x9f]"
_PATH = rf"/{_TEXT}*"
_HARMLESS = re.compile(
    rf"-O\w*|-[DU]{_TEXT}+|-W(?!l,|a,|p,)[\w=+-]*|-w|-std=[\w+]+|-g\w*|-m[\w=,.+-]+"
    r"|-f[\w-]+(?:=[\w-]+)?|-l\w[\w.+-]*"
    rf"|-ansi|-pthread|-pipe|-rdynamic|-shared|-s|-v|-pedantic(?:-errors)?|-nostdinc\+\+"
    rf"|-(?:I|L|isystem|iquote|idirafter)(?:{_PATH})?|/[^,\x00-\x1f\x7f-\x9f]*"
    r"|-Wl,(?:--as-needed|--no-as-needed|--no-undefined|-z,(?:now|relro|defs|noexecstack)"
    r"|--gc-sections|-O\d"
    r"|--strip-all|-s|--export-dynamic|-Bsymbolic(?:-functions)?|-rpath[,=](?:/"
    r"|\$ORIGIN)[^,\x00-\x1f\x7f-\x9f]*)"
)
_HARMFUL = re.compile(
    r"(?:-fplugin|-fpass-plugin|-fdump-|-fprofile-|-fauto-profile|-fbranch-|-fcallgraph-info"
    r"|-fstack-usage|-fmodule"
    r"|-fcompare-debug|-fdiagnostics-\w+-output|-fuse-ld=|-flto-|-fsave-optimization-record"
    r"|-gsplit-|-foffload|-mllvm"
    r"|-save-temps|-fopt-info-|-ftest-coverage|-frandom-seed=|-fdeps-|-finput-"
    rf"|-fself-test){_TEXT}*"
)
_FOLDER = re.compile(rf"-I{_PATH}")
_PASSES_ON = ("-Xcompiler", "--compiler-options")


class Forbidden(Exception):
    """The text says what a shared daemon refuses of a request, as the end of a sentence."""


def refusal(reason: str) -> Failed:
    """The answer to a request that is refused."""
    text = f"this machine's daemon is shared, and refuses {reason}"
    return Failed(
        0,
        "RequestError",
        f"{text}; leave it out, or set WARMCC_DISABLE=1 to have torch build it by itself",
    )


# ---------------------------------------------------------------------- checks


def _typed(_machine: Machine, _called: str, _value: Any) -> str | None:
    """The message's decoder has checked it: a number, a switch, one of a few words."""
    return None


def _ours(_machine: Machine, _called: str, _value: Any) -> str | None:
    """It is not looked at: the daemon's own stands in its place."""
    return None


def _nothing(_machine: Machine, called: str, value: Any) -> str | None:
    return (
        f"{called}, which puts something else in place of a compiler's own parts" if value else None
    )


def _no_sycl(_machine: Machine, called: str, value: Any) -> str | None:
    return f"{called}, as it builds nothing for SYCL" if value else None


def _like(pattern: str, form: str) -> Check:
    known = re.compile(pattern)

    def check(_machine: Machine, called: str, value: Any) -> str | None:
        return (
            None
            if value is None or known.fullmatch(value)
            else f"{called} {value[:100]!r}, which is not {form}"
        )

    return check


def _each(one: Check) -> Check:
    def check(machine: Machine, called: str, values: Any) -> str | None:
        return next(
            (reason for value in values if (reason := one(machine, called, value)) is not None),
            None,
        )

    return check


def _functions(machine: Machine, called: str, value: Any) -> str | None:
    pairs = value.items() if isinstance(value, dict) else ((name, "") for name in value or [])
    said = (_LINE(machine, called, name) or _SOURCE(machine, called, text) for name, text in pairs)
    return next(filter(None, said), None)


def _host_flags(_machine: Machine, _called: str, flags: list[str]) -> str | None:
    text = " ".join(flags)
    return _told(reason) if (reason := unkeyable(text)) is not None else _words(split(text))


def _told(reason: str) -> str:
    """A flag, or what is wrong with all of them."""
    return f"the flags: {reason}" if " " in reason else f"the flag {reason}"


def _words(words: list[str]) -> str | None:
    found = next(
        (word for word in words if not _HARMLESS.fullmatch(word) or _HARMFUL.fullmatch(word)), None
    )
    return f"the flag {found}" if found is not None else None


def _nvcc_flags(_machine: Machine, _called: str, flags: list[str]) -> str | None:
    if (reason := cuda_flags.unkeyable(flags)) is not None:
        return _told(reason)
    return _words(_handed_on(split(" ".join(flags))))


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


def _compiler(machine: Machine, called: str, value: str) -> str | None:
    return (
        None
        if value in machine.compilers
        else f"{called} {value[:200]!r}: it is none of its compilers"
    )


def _toolkit(machine: Machine, called: str, value: str) -> str | None:
    return (
        None
        if value in machine.toolkits
        else f"{called} {value[:200]!r}: not a CUDA toolkit of this machine"
    )


def _interpreter(machine: Machine, _called: str, value: Interpreter) -> str | None:
    if (reason := _fields(INTERPRETER, machine, value)) is not None or machine.interpreter(
        value
    ) is not None:
        return reason
    return f"Python {value.executable} with torch in {value.torch_dir}: not in `interpreters`"


def _environment(machine: Machine, _called: str, value: dict[str, str]) -> str | None:
    said = (
        ENVIRONMENT.get(name, _nothing)(machine, f"the variable {name}", text)
        for name, text in value.items()
    )
    return next(filter(None, said), None)


def _fields(table: dict[str, Check], machine: Machine, value: msgspec.Struct) -> str | None:
    for name in value.__struct_fields__:
        if name not in table:
            return f"the field {name}, which is unknown"
        if (reason := table[name](machine, f"the field {name}", getattr(value, name))) is not None:
            return reason
    return None


_LINE = _like(rf"{_TEXT}*", "text in one line")
_SOURCE = _like(rf"(?:(?!{validation.NOT_IN_TEXTS.pattern})[\s\S])*", "text")
_WORD = _like(r"\w*", "a word")
_NUMBER = _like(r"[0-9]{0,18}", "a number")
_ABSOLUTE = _like(_PATH, "an absolute path")
_VERSION = _like(r"[\w.+-]*", "a version")
_FILE = _like(r"[\w.-]*", "a suffix of files")
_NAME = _like(validation.FILE_NAME.pattern, "a name for an extension")

# ---------------------------------------------------------------------- the tables

INTERPRETER: dict[str, Check] = {  # the machine's own stands in its place
    "executable": _ABSOLUTE, "abi": _FILE, "torch_dir": _ABSOLUTE, "torch_loaded": _VERSION,
}  # fmt: skip

ENVIRONMENT: dict[str, Check] = {
    # Programs, and where they are looked for. The machine's PATH stands in place of the caller's.
    "PATH": _ours, "CC": _compiler, "CXX": _compiler, "CUDA_HOME": _toolkit, "CUDA_PATH": _toolkit,
    # What puts other programs, or code, or headers, in a compiler's place.
    "LD_LIBRARY_PATH": _nothing, "LD_RUN_PATH": _nothing, "CPATH": _nothing,
    "C_INCLUDE_PATH": _nothing, "CPLUS_INCLUDE_PATH": _nothing, "LIBRARY_PATH": _nothing,
    "COMPILER_PATH": _nothing, "GCC_EXEC_PREFIX": _nothing, "SDKROOT": _nothing,
    "CONDA_BUILD_SYSROOT": _nothing, "PYTORCH_NVCC": _nothing, "CUDA_INC_PATH": _nothing,
    "CUDNN_HOME": _nothing, "CUDNN_PATH": _nothing, "ROCM_HOME": _nothing, "ROCM_PATH": _nothing,
    "NVCC_PREPEND_FLAGS": _nothing, "NVCC_APPEND_FLAGS": _nothing, "NVCC_CCBIN": _nothing,
    # For what, and how.
    "SOURCE_DATE_EPOCH": _NUMBER, "MAX_JOBS": _NUMBER,
    "TORCH_CUDA_ARCH_LIST": _like(r"[A-Za-z0-9.+; ]*", "a list of architectures"),
    "PYTORCH_ROCM_ARCH": _like(r"[a-z0-9;:+-]*", "a list of architectures"),
    "TORCH_XPU_ARCH_LIST": _like(r"[a-z0-9,_-]*", "a list of architectures"),
    "CUDA_VISIBLE_DEVICES": _like(r"[A-Za-z0-9,/-]*", "a list of devices"),
    "TORCH_DONT_CHECK_COMPILER_ABI": _WORD, "TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES": _WORD,
    "TORCH_NO_COMPILER_WRAPPER": _WORD, "TORCH_EXTENSIONS_DIR": _ABSOLUTE,
    # No result depends on them: the daemon's own stand in their place.
    "HOME": _ours, "XDG_CACHE_HOME": _ours, "XDG_CONFIG_HOME": _ours,
    "LANG": _ours, "LC_ALL": _ours, "LC_MESSAGES": _ours,
    "CCACHE_DIR": _ours, "CCACHE_CONFIGPATH": _ours, "CCACHE_DISABLE": _ours,
    "CCACHE_MAXSIZE": _ours, "CCACHE_REMOTE_STORAGE": _ours, "CCACHE_REMOTE_ONLY": _ours,
    "CCACHE_RESHARE": _ours, "CCACHE_READONLY": _ours, "CCACHE_TEMPDIR": _ours,
    "CCACHE_UMASK": _ours,
}  # fmt: skip

REQUEST: dict[str, Check] = {
    "call": _typed, "name": _NAME, "module_name": _NAME, "interpreter": _interpreter,
    "environment": _environment, "sources": _each(_ABSOLUTE), "cpp_sources": _each(_SOURCE),
    "cuda_sources": _each(_SOURCE), "sycl_sources": _no_sycl, "functions": _functions,
    "extra_cflags": _host_flags, "extra_ldflags": _host_flags, "extra_cuda_cflags": _nvcc_flags,
    "extra_sycl_cflags": _no_sycl, "extra_include_paths": _each(_ABSOLUTE),
    "build_directory": _ABSOLUTE, "verbose": _typed, "with_cuda": _typed, "with_sycl": _no_sycl,
    "is_python_module": _typed, "is_standalone": _typed, "with_pytorch_error_handling": _typed,
    "keep_intermediates": _typed, "use_pch": _typed, "no_implicit_headers": _typed,
}  # fmt: skip


class Policy:
    """What one machine's shared daemon takes."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        own = {
            name: os.environ[name]
            for name, check in ENVIRONMENT.items()
            if check is _ours and name in os.environ
        }
        self._environment = {**own, "PATH": machine.path}

    def admit(self, request: Request) -> Request:
        """The request with the machine's own Python, PATH and settings in it. Raises Forbidden."""
        if (reason := _fields(REQUEST, self._machine, request)) is not None:
            raise Forbidden(reason)
        taken = {
            name: text
            for name, text in request.environment.items()
            if ENVIRONMENT.get(name, _ours) is not _ours
        }
        return msgspec.structs.replace(
            request,
            interpreter=self._machine.interpreter(request.interpreter),
            environment={**taken, **self._environment},
        )

    def why_not(self, plan: Plan) -> str | None:
        """What of stock's plan a shared daemon refuses; None when nothing."""
        host = _words(split(f"{plan.cflags} {plan.post_cflags} {plan.ldflags}"))
        if host is not None or not plan.nvcc:
            return host
        words = [
            word
            for word in split(f"{plan.cuda_cflags} {plan.cuda_post_cflags}")
            if not _FOLDER.fullmatch(word)
        ]
        while "-ccbin" in words:
            at = words.index("-ccbin")
            if (
                reason := _compiler(
                    self._machine, "the flag -ccbin", "".join(words[at + 1 : at + 2])
                )
            ) is not None:
                return reason
            del words[at : at + 2]
        return _nvcc_flags(self._machine, "", [shlex.join(words).replace("$", "$$")])

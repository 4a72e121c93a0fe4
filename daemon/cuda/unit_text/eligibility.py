"""Which CUDA units warm state may compile, judged by their flags and their text, and behind which
prelude.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection

from warmcc.daemon.cuda.unit_text import macros
from warmcc.daemon.pch import flag_reduction, leading_includes
from warmcc.daemon.plan import requested
from warmcc.daemon.plan.stock import Plan
from warmcc.daemon.toolchain import cuda as toolkit
from warmcc.daemon.toolchain import lookups
from warmcc.daemon.toolchain.flags import folders, split
from warmcc.request import Request

EXTENSION = ("torch/extension.h",)
_DEBUG = {"-g", "-G", "--debug", "--device-debug"}
_NVCC_VARIABLES = {"NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"}
_OURS = frozenset(("torch", "ATen", "c10"))
_EXTRA = re.compile(r"(?:cub|thrust|cuda|cute|cutlass)/")  # libraries that cost seconds
# Headers that may stand in a prelude without torch: guarded, and of the toolkit or a standard
# library.
_TOOLKITS = re.compile(
    r"(?:cub|thrust|cuda|cooperative_groups|nv|crt)/.+|cuda\w*\.h|(?:device|vector|math)_\w+\.h|\w+_intrinsics\.h"
    r"|(?:mma|cooperative_groups|driver_types|curand_kernel|curand|sm_\w+)\.h"
    r"|[a-z_]+|(?:std(?:io|lib|int|def|arg|bool)|string|math|float|limits|inttypes|errno|time)\.h"
)
_INCLUDE = re.compile(r"#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"]")
_OF_TORCH = re.compile(r"(?:torch|ATen|c10|caffe2|pybind11)/")
_WHOLE = re.compile(
    r"torch/(?:(?:extension|torch|all|python|nn|script|optim|serialize|data|jit)\.h|csrc/api/|nn/)"
)
_TENSORS = re.compile(r"(?:torch/(?!headeronly/)|ATen/|caffe2/|pybind11/)")
_FEW = re.compile(r"ATen/(?:(?:core|cuda|ops|detail)/|Dispatch\w*\.h|AccumulateType\.h)")
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b(.*)$", re.M)
_SAFE = {
    "defined", "true", "false", "NDEBUG", "CUDA_VERSION", "CUDART_VERSION", "USE_ROCM", "_MSC_VER",
    "_MSVC_LANG", "_WIN32", "_WIN64", "WIN32",  # of Windows: headers ask, and define none of them
}  # fmt: skip
_SEES_HEADERS = re.compile(r"__has_include\w*|__COUNTER__|__INCLUDE_LEVEL__")
_WORD = re.compile(r"\b[A-Za-z_]\w*")  # not the L of 201703L
_SEES_PRELUDE = re.compile(r"__COUNTER__|__INCLUDE_LEVEL__")
_OF_CUDA = re.compile(r"\b(?:(?:at|c10)::cuda\b|C10_CUDA_\w+|AT_CUDA_\w+)")
_INCLUDES_CUDA = re.compile(r"#[ \t]*include[ \t]*<(?:ATen|c10)/cuda/")


def why_not(request: Request, plan: Plan, text: str) -> str | None:
    """Why a unit of a request goes to nvcc itself whatever is warm, or None."""
    words = split(f"{plan.cuda_cflags} {plan.cuda_post_cflags}")
    if requested.workdir(request) is not None:
        return "a flag may name a relative path"
    if debug := _DEBUG.intersection(words):
        return f"{debug.pop()} describes the source to a debugger"
    if variable := _NVCC_VARIABLES.intersection(request.environment):
        return f"{variable.pop()} is set"
    added = lookups.of_variables(request.environment)
    if not all(map(os.path.isabs, added)):
        return "a variable names a relative folder of headers"
    if flag_reduction.any_matters([*users_folders(request), *added], _OURS):
        return "a folder of headers may stand in front of torch's"
    if match := _SEES_PRELUDE.search(text):
        return f"{match.group()} depends on headers"
    return None


def users_folders(request: Request) -> list[str]:
    """Where a unit's own headers are looked for, beside its own folder: not torch's, nor the
    toolkit's, which callers name as well."""
    named = [*folders(split(" ".join(request.extra_cuda_cflags))), *request.extra_include_paths]
    theirs = [os.path.join(os.path.realpath(request.interpreter.torch_dir), "include")]
    if (home := toolkit.home(request.environment)) is not None:
        theirs.append(os.path.join(os.path.realpath(home), "include"))
    roots = tuple(f"{path}{os.sep}" for path in theirs)
    return [path for path in named if not f"{os.path.realpath(path)}{os.sep}".startswith(roots)]


def why_not_lean(text: str, mentioned: Collection[str] | None = None) -> str | None:
    """Why a unit may mean something else behind a reduced prelude: it asks for macros that headers
    may define. ``mentioned`` are those that headers mention, as far as that is known.

    >>> why_not_lean("#if __CUDA_ARCH__ >= 800 || __cplusplus >= 201703L || defined _MSC_VER")
    >>> why_not_lean("#ifdef TORCH_API")
    'a condition on TORCH_API may depend on headers'
    >>> why_not_lean("#ifdef MY_OPTION", set())
    """
    if match := _SEES_HEADERS.search(text):
        return f"{match.group().strip()} may depend on headers"
    if (match := _OF_CUDA.search(text)) and not _INCLUDES_CUDA.search(text):
        return f"{match.group()} without its header"  # the prelude has it, and stock's has not
    if names := sorted(asked(text) if mentioned is None else mentioned):
        return f"a condition on {names[0]} may depend on headers"
    return None


def asked(text: str) -> set[str]:
    """The macros that a unit's conditions ask for, and that it does not define itself."""
    found = {name for words in _CONDITION.findall(text) for name in _WORD.findall(words)}
    found -= {*macros.defined(text), *_SAFE}
    return {name for name in found if not name.startswith("__")}


def early(text: str) -> set[str]:
    r"""The macros that a unit defines in front of an include: headers that it reads there may
    mention them, which a prelude has read before.

    >>> sorted(early("#define A\n#include <torch/types.h>\n#define B 2"))
    ['A']
    """
    last = max((match.start() for match in _INCLUDE.finditer(text)), default=0)
    return macros.defined(text[:last])


def has_torch(text: str) -> bool:
    """Whether a unit says itself that it includes torch."""
    return any(_OF_TORCH.match(name) for name in _INCLUDE.findall(text))


def weight(text: str) -> float:
    """How much of the time that a unit with all of torch's headers takes one with this text takes
    where nothing is warm, measured with nvcc 13: ``ATen/ATen.h`` and ``torch/types.h`` need 26 to
    32 s where ``torch/extension.h`` needs 69, and ``ATen/cuda/CUDAContext.h`` or a tensor's own
    header 10; ``c10``'s need 6."""
    names = _INCLUDE.findall(text)
    if any(_WHOLE.match(name) for name in names):
        return 1.0
    if any(_TENSORS.match(name) and not _FEW.match(name) for name in names):
        return 0.4
    return 0.15 if any(_FEW.match(name) for name in names) else 0.0


def extras(text: str) -> tuple[str, ...]:
    """Headers of large libraries with which a unit begins: its profile has them in the preludes."""
    return tuple(sorted(name for name in set(leading_includes.leading(text)) if _EXTRA.match(name)))


def toolkits(text: str) -> tuple[str, ...]:
    """The toolkit's and the standard libraries' headers with which a unit without torch begins."""
    found = leading_includes.leading(text)
    stop = next(
        (index for index, name in enumerate(found) if not _TOOLKITS.fullmatch(name)), len(found)
    )
    return found[:stop]


def block(text: str, known: frozenset[str]) -> tuple[str, ...] | None:
    """The headers with which a unit begins, as far as they are among those that the host's prelude
    has read; torch/extension.h alone where nothing but these and the toolkit's stand in front of
    it; None when the unit includes more of torch after them, which would cost more than it gains.
    """
    found = leading_includes.leading(text)
    before = found[: found.index(EXTENSION[0])] if EXTENSION[0] in found else None
    if before is not None and all(_among(n, known) or _TOOLKITS.fullmatch(n) for n in before):
        return EXTENSION
    stop = next((index for index, name in enumerate(found) if not _among(name, known)), len(found))
    later = _INCLUDE.findall(text)[stop:]
    return (
        None
        if any(_OF_TORCH.match(name) and not _among(name, known) for name in later)
        else found[:stop]
    )


def _among(name: str, known: frozenset[str]) -> bool:
    return any(path.endswith(f"/{name}") for path in known)

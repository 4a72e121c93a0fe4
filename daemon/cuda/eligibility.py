"""Which CUDA units warm state may compile, judged by their flags and their text, and behind which
prelude.
"""

from __future__ import annotations

import os
import re

from warmcc.daemon.pch import flag_reduction, leading_includes, opening
from warmcc.daemon.plan import requested
from warmcc.daemon.plan.stock import Plan
from warmcc.daemon.toolchain.flags import folders, split
from warmcc.request import Request

_DEBUG = {"-g", "-G", "--debug", "--device-debug", "-lineinfo", "--generate-line-info"}
_HEADER_VARIABLES = {
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
}
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
_FILES, _BYTES = 64, 1 << 20  # headers that are looked into, and how far
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b(.*)$", re.M)
_SAFE = {"defined", "true", "false", "NDEBUG", "CUDA_VERSION", "CUDART_VERSION", "USE_ROCM"}
# An include in quotes is a header of the user's, which may ask for anything.
_QUOTED = re.compile(r"#[ \t]*include[ \t]*\"[^\"\n]*\"")
_SEES_HEADERS = re.compile(rf"__has_include\w*|__COUNTER__|__INCLUDE_LEVEL__|{_QUOTED.pattern}")
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
    if variable := _HEADER_VARIABLES.intersection(request.environment):
        return f"{variable.pop()} is set"
    if flag_reduction.any_matters(users_folders(request), _OURS):
        return "a folder of headers may stand in front of torch's"
    if match := _SEES_PRELUDE.search(text):
        return f"{match.group()} depends on headers"
    return None


def users_folders(request: Request) -> list[str]:
    """Where a unit's own headers are looked for, beside its own folder."""
    return [*folders(split(" ".join(request.extra_cuda_cflags))), *request.extra_include_paths]


def has_own(text: str) -> bool:
    """Whether a unit includes anything in quotes."""
    return _QUOTED.search(text) is not None


def hides_torch(text: str, folder: str, searched: list[str]) -> bool:
    """Whether a unit in ``folder`` that does not include torch itself may include a header of its
    own that does: there is nothing warm for it then. Reads the headers that it finds beside the
    unit and in the folders of ``searched``."""
    if has_torch(text):
        return False
    waiting, known = [(name, folder) for name in _INCLUDE.findall(text)], set[str]()
    while waiting:
        name, beside = waiting.pop()
        places = (os.path.join(place, name) for place in (beside, *searched))
        path = next(filter(os.path.isfile, places), None)
        if path is None or path in known:
            continue
        known.add(path)
        own = opening.head(path, _BYTES)
        if has_torch(own) or own.endswith("\0") or len(known) > _FILES:
            return True
        waiting += [(more, os.path.dirname(path)) for more in _INCLUDE.findall(own)]
    return False


def why_not_lean(text: str) -> str | None:
    """Why a unit may mean something else behind a reduced prelude: it asks for macros, which
    headers may define.

    >>> why_not_lean("#if __CUDA_ARCH__ >= 800")
    >>> why_not_lean("#ifdef TORCH_API")
    'a condition on TORCH_API may depend on headers'
    """
    if match := _SEES_HEADERS.search(text):
        return f"{match.group().strip()} may depend on headers"
    if (match := _OF_CUDA.search(text)) and not _INCLUDES_CUDA.search(text):
        return f"{match.group()} without its header"  # the prelude has it, and stock's has not
    own = set(re.findall(r"#[ \t]*define[ \t]+(\w+)", text)) | _SAFE
    for condition in _CONDITION.findall(text):
        for name in re.findall(r"[A-Za-z_]\w*", condition):
            if name not in own and not name.startswith("__"):
                return f"a condition on {name} may depend on headers"
    return None


def has_torch(text: str) -> bool:
    """Whether a unit says itself that it includes torch."""
    return any(_OF_TORCH.match(name) for name in _INCLUDE.findall(text))


def extras(text: str) -> tuple[str, ...]:
    """Headers of large libraries with which a unit begins: its profile has them in the preludes."""
    return tuple(sorted(name for name in set(leading_includes.leading(text)) if _EXTRA.match(name)))


def toolkits(text: str) -> tuple[str, ...]:
    """The headers of the toolkit and the standard libraries with which a unit without torch begins."""
    found = leading_includes.leading(text)
    stop = next(
        (index for index, name in enumerate(found) if not _TOOLKITS.fullmatch(name)), len(found)
    )
    return found[:stop]


def block(text: str, known: frozenset[str]) -> tuple[str, ...] | None:
    """The headers with which a unit begins, as far as they are among those that the host's prelude
    has read; None when it includes more of torch after them, which would cost more than it
    gains."""
    found = leading_includes.leading(text)
    stop = next((index for index, name in enumerate(found) if not _among(name, known)), len(found))
    later = _INCLUDE.findall(text)[stop:]
    return (
        None
        if any(_OF_TORCH.match(name) and not _among(name, known) for name in later)
        else found[:stop]
    )


def _among(name: str, known: frozenset[str]) -> bool:
    return any(path.endswith(f"/{name}") for path in known)

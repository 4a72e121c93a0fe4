"""The lean preludes: the parts of ``torch/extension.h`` that most sources need.

``TORCH`` is tensors, autograd and operator registration; ``PYTHON`` adds pybind11 with torch's
casters. A source whose identifiers need nothing else is compiled behind one of them. Where that is
not enough, the compile fails, the whole prelude takes its place in the same build, and the
identifiers that were missing are remembered.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

from warmcc import digest
from warmcc.daemon.pch import leading_includes
from warmcc.daemon.system.bounds import write_kept
from warmcc.version import __version__

TORCH = (
    "torch/types.h", "torch/autograd.h", "torch/library.h",
    "forward_list", "queue", "ranges", "span", "valarray", "Python.h",
)  # fmt: skip
PYTHON = (
    *TORCH,
    "torch/csrc/utils/pybind.h",
    "torch/csrc/Exceptions.h",
    "torch/csrc/autograd/python_variable.h",
)
TITLES = {TORCH: "lean prelude", PYTHON: "lean prelude with pybind11"}

# Headers of which the lean preludes are parts: an include of one, in front of everything else, is
# left out.
_WHOLE = ("torch/extension.h", "torch/all.h", "torch/torch.h")
_WHOLE_INCLUDE = re.compile(
    r"#[ \t]*include[ \t]*[<\"](?:torch/(?:extension|all|torch|python|script)\.h|torch/csrc/"
    r"|pybind11/)[^>\"]*"
)

_OF_PYTHON = re.compile(r"\b(?:py|pybind11|PYBIND11_\w+|wrap_pybind_function\w*|THPVariable_\w+)\b")
# What only the rest of torch/extension.h declares: torch::nn and its neighbours, more of torch's
# Python side.
_BEYOND = re.compile(
    r"\bTHP(?!Variable_)\w*\b"
    r"|\btorch\s*::\s*(?:nn|optim|data|serialize|jit|python|utils|fft|linalg|special|sparse|nested"
    r"|enumtype|save|load)\b"
)
# What a source mentions that has to do with a header of TORCH; torch/types.h has all tensors.
_OF_HEADER = {
    "torch/autograd.h": re.compile(r"[Gg]rad|Variable|Function|Node|Edge|Hook"),
    "torch/library.h": re.compile(
        r"(?i:library|dispatch|schema|ivalue|custom|class_)|Operator|List\b|Dict\b|CppFunction"
    ),
    "forward_list": re.compile("forward_list"),
    "queue": re.compile("queue"),
    "ranges": re.compile("ranges|views"),
    "span": re.compile("span"),
    "valarray": re.compile("valarray"),
    "Python.h": re.compile("[Pp]y"),
}
# The preprocessor can see which headers were read.
_SEES_HEADERS = re.compile(
    r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif|include_next|import)\b|__has_include|__COUNTER__"
    r"|__INCLUDE_LEVEL__",
    re.M,
)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
# What g++ says of a name that it does not know.
_UNKNOWN = re.compile(
    "\u2018([^\u2019]*)\u2019 (?:was not declared|has not been declared|does not name"
    "|is not a (?:member|class|namespace|type|template))"
    "|(?:no member named|no type named|incomplete type) \u2018([^\u2019]*)\u2019"
    # and nvcc's front ends
    '|(?:identifier|has no member(?: [a-z]+)?|incomplete type) "([^"]*)"'
)
# In which namespace or class it is missing
_NO_MEMBER = re.compile(
    'is not a member of \u2018(?:\\w+::)*(\\w+)\u2019|namespace "(?:\\w+::)*(\\w+)" has no member'
)
# Names in code, past comments, strings and characters
_CODE = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
    r"|(?<!\w)([A-Za-z_]\w*(?:\s*::\s*[A-Za-z_]\w*)*)",
    re.S,
)
_QUOTED = re.compile('\u2018([^\u2019]*)\u2019|"([^"]*)"')
# The first error, and the line of the source with its mark, which follow unless the message has
# several lines.
_ERROR = re.compile(r"error(?: #\S+)?: (.*)(?:\n(.*)\n([ |~]*)\^)?")
_SHORTEST = 2  # single letters are everybody's
_LIMIT = 5000  # identifiers that are remembered


def maker(toolchain_digest: str) -> str:
    """The maker of objects behind a lean prelude: a name with a digest (``store/trust.py``)."""
    return f"lean {digest.of_value([toolchain_digest, digest.of_file(Path(__file__))])[:16]}"


def why_not(text: str) -> str | None:
    """Why a source needs the whole prelude, by what it mentions; None when a lean one may do."""
    if match := _SEES_HEADERS.search(text):
        return f"{match.group().strip()} may depend on headers"
    if match := _BEYOND.search(text):
        return f"{match.group()} is beyond it"
    return None


def headers(text: str) -> tuple[str, ...]:
    """The smaller of the lean preludes that has what a source mentions."""
    return PYTHON if _OF_PYTHON.search(text) else TORCH


def parts(text: str, headers: tuple[str, ...]) -> tuple[str, ...]:
    """Those of a lean prelude's headers that a source may need: reading them as text takes time.

    >>> parts("at::Tensor f(at::Tensor x) { return x; }", TORCH)
    ('torch/types.h',)
    """
    return tuple(
        header
        for header in headers
        if header not in _OF_HEADER or _OF_HEADER[header].search(text) is not None
    )


def rewrite(text: str) -> str | None:
    """The source without the includes that the lean prelude replaces, or None.
    Lines keep their numbers. None: some includes would stay."""
    headers = leading_includes.leading(text)
    lines = text.split("\n")
    left = [name for name in headers if name in _WHOLE]
    for number, line in enumerate(lines):
        if not left:
            break
        if (match := re.match(r"\ufeff?[ \t]*#[ \t]*include[ \t]*<([^<>]+)>", line)) and match[
            1
        ] == left[0]:
            lines[number] = ""
            left.pop(0)
    rewritten = "\n".join(lines)
    return None if left or _WHOLE_INCLUDE.search(rewritten) else rewritten


def complained_of(output: str) -> set[str]:
    r"""The identifiers in a compiler's first error; later ones may be about the source's names.

    >>> undefined = 'x.cu({}): error: identifier "{}" is undefined\n'
    >>> complained_of(undefined.format(4, "far") + undefined.format(5, "m"))
    {'far'}
    >>> untyped = "x.cu(4): error: this declaration has no type specifier\n"
    >>> complained_of(untyped + "  LIBRARY(name, m) {\n  ^")
    {'LIBRARY'}
    """
    if (error := _ERROR.search(output)) is None:
        return set()
    said, line, before = error.groups()
    if names := _names(_UNKNOWN, said):
        return names
    if line is not None and line.isascii():
        at = len(before)
        if marked := [
            match[0] for match in _IDENTIFIER.finditer(line) if match.start() <= at <= match.end()
        ]:
            return set(marked)
    return {name for name in _names(_QUOTED, said) if len(name) > 4}


def _names(pattern: re.Pattern[str], text: str) -> set[str]:
    return {
        name for parts in pattern.findall(text) for name in _IDENTIFIER.findall(" ".join(parts))
    }


def mentions(text: str) -> Iterator[str]:
    """The names in a source's code, with what qualifies them; what is in strings and comments is
    none.

    >>> list(mentions('at::CUDA(x.y); // z'))
    ['at', 'at::CUDA', 'x', 'y']
    >>> list(mentions('TORCH_CHECK(a, "a CUDA tensor", c10::DeviceType::CUDA, 0x1F)'))
    ['TORCH_CHECK', 'a', 'c10', 'c10::DeviceType', 'DeviceType::CUDA']
    """
    for match in _CODE.finditer(text):
        if match[1] is not None:
            parts = [part.strip() for part in match[1].split("::")]
            yield parts[0]
            yield from map("::".join, itertools.pairwise(parts))


def _qualifier(output: str) -> str:
    """The namespace or class in which a compiler's first error missed a name."""
    error = _ERROR.search(output)
    match = None if error is None else _NO_MEMBER.search(error[1])
    return "" if match is None else match[1] or match[2]


class Missing:
    """Names that were not found behind the lean prelude, and were behind the whole one, as sources
    mention them (``at::far``): another namespace may have the name. Kept in one file, for as long
    as warmcc's version is the same: the next one's prelude may have them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: set[str] = set()
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            found = json.loads(path.read_text(encoding="utf-8"))
            if found["version"] == __version__:
                self._known = {name for name in found["names"] if isinstance(name, str)}

    def mentioned_in(self, text: str) -> str | None:
        """The first name of a source that is known to be missing, or None."""
        if not self._known:
            return None
        return next((name for name in mentions(text) if name in self._known), None)

    def learn(self, complaints: str, sources: list[str]) -> list[str]:
        """Learn the names that a compiler complained of, where the sources mention them.
        Returns the new ones."""
        missed = {name for name in complained_of(complaints) if len(name) >= _SHORTEST}
        missed -= _TOO_COMMON
        mentioned = {name for text in sources for name in mentions(text)}
        split = {name: name.rpartition("::") for name in mentioned}
        named = {name for name, parts in split.items() if parts[2] in missed}
        qualifier = _qualifier(complaints)
        exact = {name for name in named if split[name][0] == qualifier}
        new = sorted((exact or named) - self._known)
        if new and len(self._known) + len(new) <= _LIMIT:
            self._known.update(new)
            with contextlib.suppress(OSError):
                write_kept(
                    self._path, json.dumps({"version": __version__, "names": sorted(self._known)})
                )
        return new


# Words of nearly every source, and of every message about one: remembering them would switch the
# lean prelude off.
_TOO_COMMON = frozenset(
    re.findall(
        r"\w+",
        "torch at c10 std Tensor auto const int double float bool void char long short unsigned "
        "size_t int64_t int32_t "
        "uint8_t template typename class struct return namespace using static inline string vector "
        "tuple options "
        "TORCH_EXTENSION_NAME __global__ __device__ __host__ __shared__ threadIdx blockIdx "
        "blockDim gridDim",
    )
)

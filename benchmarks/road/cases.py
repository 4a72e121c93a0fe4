"""What is built: lists of flags as people write them, packages with headers of their own, others'
packages, wrong code.

A case is a few words of data. It makes ``Job`` after ``Job``: the same call with a name, a number
that nobody has seen, an edit, a mistake.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.cuda import library_headers
from benchmarks.road import foreign, texts

FIRST, SECOND, EDIT, NEW, SAME, ERROR = MOMENTS = (
    "first sight", "second", "edit", "hit, new process", "hit, same process", "error",
)  # fmt: skip
CPP, CUDA = "C++", "CUDA"


@dataclass(frozen=True)
class Version:
    """One state of a case's sources. ``edited`` is the number of what is edited, ``number`` of all
    else.
    """

    name: str
    number: int
    edited: int
    mistake: str | None = None


@dataclass(frozen=True)
class Job:
    """A call that both sides make. ``check`` is an expression over ``module``, ``torch`` and
    ``ctypes``, true if the module is of this version."""

    function: str
    arguments: dict[str, Any]
    check: str


@dataclass(frozen=True)
class Case:
    """``make`` writes the files of a version into a folder, and gives the call. ``units``: sources
    of C++ and of CUDA, for an estimate of the time."""

    name: str
    about: str
    make: Callable[[Path, Version], Job]
    units: tuple[int, int]
    mistake: str = "name"
    moments: tuple[str, ...] = MOMENTS

    @property
    def is_cuda(self) -> bool:
        return self.units[1] > 0


def put(path: Path, text: str) -> None:
    """Write a file, unless it has this text: what did not change keeps its time, as in an
    editor.
    """
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _flags(cflags: list[str], cuda_cflags: list[str] | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if cflags:
        found["extra_cflags"] = cflags
    if cuda_cflags:
        found["extra_cuda_cflags"] = cuda_cflags
    return found


def _inline(
    language: str, cflags: list[str], cuda_cflags: list[str] | None, _: Path, version: Version
) -> Job:
    """``load_inline`` with ``functions=``; a CUDA source begins with torch/extension.h, as 95 of
    100 do.
    """
    text = texts.function(language, "f", version.edited, version.mistake)
    arguments: dict[str, Any] = {
        "name": version.name,
        "functions": ["f"],
        **_flags(cflags, cuda_cflags),
    }
    if language == CUDA:
        arguments["cpp_sources"] = "torch::Tensor f(torch::Tensor x);\nint64_t f_mark();"
        arguments["cuda_sources"] = f"#include <torch/extension.h>\n{text}"
        arguments["functions"].append("f_mark")
    else:
        arguments["cpp_sources"] = text
    if version.mistake == texts.BINDING:
        arguments["functions"].append("road_missing")
    return Job("load_inline", arguments, texts.check(language, "f", version.edited))


def _package(language: str, count: int, cflags: list[str], cuda_cflags: list[str] | None,
    folder: Path,
             version: Version) -> Job:  # fmt: skip
    """``load`` of files that share a header."""
    files = texts.package(language, count, version.number, version.edited, version.mistake)
    for name, text in files.items():
        put(folder / version.name / name, text)
    sources = [str(folder / version.name / name) for name in files if not name.endswith(".h")]
    arguments = {"name": version.name, "sources": sources, **_flags(cflags, cuda_cflags)}
    added = version.number * (count - 1) + version.edited
    return Job("load", arguments, texts.check(language, "run", added))


def _foreign(package: foreign.Package, folder: Path, version: Version) -> Job:
    """``load`` as a package from PyPI calls it, of a copy of its files."""
    root = foreign.unpacked(package)
    here = folder / version.name
    numbers = dict.fromkeys(package.sources[:-1], version.number) | {
        package.sources[-1]: version.edited
    }
    for path in package.files(root):
        text = (root / path).read_text(encoding="utf-8")
        if path in numbers:
            text += texts.stamp(
                path, numbers[path], version.mistake if path == package.sources[-1] else None
            )
        put(here / path, text)
    includes = [str(here / path) for path in package.include] + (
        library_headers() if package.is_cuda else []
    )
    arguments = {
        "name": version.name, "sources": [str(here / path) for path in package.sources],
        "extra_include_paths": includes, **_flags(package.cflags(), package.cuda_cflags),
    }  # fmt: skip
    return Job("load", arguments, texts.check_stamps(numbers))


def _inline_case(name: str, cflags: list[str], cuda_cflags: list[str] | None = None) -> Case:
    language = CPP if cuda_cflags is None else CUDA
    written = [
        " ".join(cflags).strip() or "none",
        *([] if cuda_cflags is None else [" ".join(cuda_cflags) or "none"]),
    ]
    return Case(
        name, f"{language}, load_inline, flags: {' / '.join(written)}",
        functools.partial(_inline, language, cflags, cuda_cflags),
        (1, 0) if language == CPP else (1, 1),
    )  # fmt: skip


def _package_case(
    language: str, count: int, cflags: list[str], cuda_cflags: list[str] | None = None
) -> Case:
    written = " / ".join(" ".join(flags) for flags in (cflags, cuda_cflags or []) if flags)
    return Case(
        f"{'cuda' if language == CUDA else 'cpp'}-files-{count}",
        f"{language}, load of files ({count}) that share a header, flags: {written}",
        functools.partial(_package, language, count, cflags, cuda_cflags),
        (1, count) if language == CUDA else (count, 0),
    )


def _foreign_case(package: foreign.Package, moments: tuple[str, ...] = MOMENTS) -> Case:
    cuda = sum(path.endswith(".cu") for path in package.sources)
    return Case(
        package.name, f"{package.about}, load of {len(package.sources)} files",
        functools.partial(_foreign, package), (len(package.sources) - cuda, cuda), moments=moments,
    )  # fmt: skip


def _wrong_case(language: str, mistake: str) -> Case:
    cuda_cflags: list[str] | None = [] if language == CUDA else None
    return Case(
        f"wrong-{'cuda' if language == CUDA else 'cpp'}-{mistake}",
        f"{language}, load_inline, a mistake: {mistake}",
        functools.partial(_inline, language, [], cuda_cflags), (1, int(language == CUDA)), mistake,
        (ERROR,),
    )  # fmt: skip


# No two of these have the same flags: each is the first to bring its own to the daemon (but for the
# default ones).
_CASES = [
    _inline_case("cpp-default", []),
    _inline_case("cpp-O2", ["-O2"]),
    _inline_case("cpp-O3", ["-O3"]),
    _inline_case("cpp-O3-std", ["-O3", "-std=c++17"]),
    _inline_case("cpp-native", ["-O3", "-march=native", "-fopenmp"]),
    _inline_case("cpp-debug", ["-g\n\n"]),
    _inline_case("cuda-default", [], []),
    _inline_case("cuda-fast", [], ["-O3", "--use_fast_math"]),
    _inline_case("cuda-O3", ["-O3"], ["-O3"]),
    _inline_case("cuda-O3-fast", ["-O3"], ["-O3", "--use_fast_math"]),
    _inline_case("cuda-O3-std", ["-O3", "-std=c++17"], ["-O3", "-std=c++17"]),
    _inline_case("cuda-lineinfo", ["-O2"], ["-O3", "-lineinfo", "-Xptxas", "-v"]),
    _inline_case("cuda-rwkv", ["-O3"],
        ["-O3", "--use_fast_math", "-Xptxas -O3", "--extra-device-vectorization",
                                        "-D_N_=64"]),
    _inline_case("cuda-arch", ["-O3"],
        ["-gencode=arch=compute_90a,code=sm_90a", "--expt-relaxed-constexpr",
                                        "--maxrregcount=64"]),
    _package_case(CPP, 1, ["-O3", "-DONE"]),
    _package_case(CPP, 6, ["-O3", "-ffast-math"]),
    _package_case(CPP, 30, ["-O2", "-DNDEBUG"]),
    _package_case(CUDA, 1, ["-O3", "-DONE"], ["-O3", "-DONE"]),
    _package_case(CUDA, 6, ["-O3", "-Wall"], ["-O3", "--use_fast_math", "-DSIX"]),
    _package_case(CUDA, 30, ["-O3", "-DNDEBUG"], ["-O3", "-DNDEBUG", "--expt-extended-lambda"]),
    _foreign_case(foreign.CPU_ADAM),
    _foreign_case(foreign.FUSED_ADAM_CPU),
    _foreign_case(foreign.FUSED_ADAM),
    _foreign_case(foreign.EXLLAMA),
    _foreign_case(foreign.EXLLAMAV2, (FIRST, EDIT, NEW, SAME, ERROR)),
    *(_wrong_case(CPP, kind) for kind in (*texts.HOST, texts.BINDING)),
    *(_wrong_case(CUDA, kind)
      for kind in ("syntax", "name", "type", "arguments", "header", texts.BINDING, *texts.KERNEL)),
]  # fmt: skip
CASES = {case.name: case for case in _CASES}
SHORT = ("cpp-native", "wrong-cpp-name")

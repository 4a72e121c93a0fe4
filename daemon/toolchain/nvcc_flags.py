"""Which of nvcc's flags the daemon understands to the last word.
A call with any other is left to stock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from warmcc.daemon.toolchain import flags as host

_PLAIN = re.compile(
    r"-O[0-3]?|--optimize=\d|-[DUI]\S+|-isystem=\S+|-std=c\+\+\d\d|--std=c\+\+\d\d|-g|-G"
    r"|--device-debug|--debug"
    r"|-lineinfo|--generate-line-info|-use_fast_math|--use_fast_math|-w|-m64|-res-usage"
    r"|--resource-usage"
    r"|--?(?:ftz|prec-div|prec-sqrt|fmad)=(?:true|false)|--?maxrregcount[= ]?\d*"
    r"|--?(?:extended-lambda|expt-extended-lambda|expt-relaxed-constexpr|extra-device-vectorization"
    r"|restrict)"
    r"|--?gencode=\S+|--?(?:gpu-architecture|arch)=\S+|--?(?:gpu-code|code)=\S+"
    r"|--?default-stream=[\w-]+"
    r"|--?diag-suppress=[\d,]+|--?Wno-deprecated-gpu-targets|--?(?:threads|split-compile)=\d+"
    r"|-t=?\d+"
    r"|-W(?:all-warnings|error|no-[\w-]+|reorder|ext-lambda-captures-this)(?:=[\w-]+)?"
    r"|--?allow-unsupported-compiler|--?source-in-ptx|--?compress-mode=\w+"
    r"|-D__CUDA_NO_\w+|--default-stream|-U__CUDA_NO_\w+"
)
_VALUED = {
    "-D", "-U", "-I", "-isystem", "-gencode", "--generate-code", "-arch", "--gpu-architecture",
    "-code", "--gpu-code", "-std", "--std", "-maxrregcount", "--maxrregcount", "--threads", "-t",
    "--default-stream", "-default-stream", "-diag-suppress", "--diag-suppress", "--include-path",
    "--system-include", "--define-macro", "--undefine-macro",
}  # fmt: skip
_THREADS = re.compile(r"--?threads=\d+|-t=?\d+")
_NUMBER_OF_THREADS = re.compile(r"(?<!\S)(?:--?threads[ =]|-t[ =]?)(\d+)(?!\S)")
_FOLDERS = {"-I", "-isystem", "--include-path", "--system-include"}
_JOINED = ("-isystem=", "-I")
_TO_NO_FILES = {"-Xptxas", "--ptxas-options", "-Xcudafe", "-Xfatbin", "--fatbin-options"}
_PTXAS = re.compile(
    r"-O[0-4]|-v|--verbose|-w|--warn-on-\S+|-warn-\S+|-dlcm=\w+|-dscm=\w+"
    r"|--allow-expensive-optimizations=\w+|-lineinfo"
    r"|--?maxrregcount=\d+|--register-usage-level=\d+|--def-(?:load|store)-cache=\w+|--warn-spills"
    r"|--disable-warnings|--opt-level=[0-4]"
)
_FATBINARY = re.compile(r"--?compress-all|--?compress=(?:true|false)")
_CUDAFE = re.compile(
    r"--(?:diag_(?:suppress|warning|error|remark)=[\w,]+|display_error_number|promote_warnings)"
)
_SEARCHES = re.compile(r"-(?:I|isystem|iquote|idirafter|include|imacros).*")


def _host(text: str) -> str | None:
    found = next((word for word in text.split() if _SEARCHES.fullmatch(word)), None)
    return found or host.unkeyable(text)


def _unknown(known: re.Pattern[str], text: str) -> str | None:
    return next((word for word in text.split() if not known.fullmatch(word)), None)


_PASSED_ON: dict[str, Callable[[str], str | None]] = {
    "-Xcompiler": _host,
    "--compiler-options": _host,
    "-Xptxas": lambda text: _unknown(_PTXAS, text),
    "--ptxas-options": lambda text: _unknown(_PTXAS, text),
    "-Xcudafe": lambda text: _unknown(_CUDAFE, text),
    "-Xfatbin": lambda text: _unknown(_FATBINARY, text),
    "--fatbin-options": lambda text: _unknown(_FATBINARY, text),
}


def without_threads(words: list[str]) -> list[str]:
    """Flags without those that say how many steps nvcc runs at a time, which changes no result.

    >>> without_threads(["-O3", "--threads", "4", "-t", "0", "-t2", "-threads=8", "-w"])
    ['-O3', '-w']
    """
    rest = iter(words)
    found = []
    for word in rest:
        if word in ("--threads", "-threads", "-t"):
            next(rest, None)
        elif not _THREADS.fullmatch(word):
            found.append(word)
    return found


def options(words: Iterable[str]) -> list[tuple[str, bool]]:
    """Each word, with whether it is an option of nvcc's own, not what the option before it takes.

    >>> [word for word, is_own in options(["-Xcompiler", "-DA", "-DB", "-I", "/a"]) if is_own]
    ['-Xcompiler', '-DB', '-I']
    """
    found: list[tuple[str, bool]] = []
    for word in words:
        before, is_own = found[-1] if found else ("", False)
        found.append((word, not (is_own and (before in _VALUED or before in _PASSED_ON))))
    return found


def has_threads(words: list[str]) -> bool:
    """Whether nvcc runs several steps at a time.

    >>> has_threads(["-O3", "-t", "0"]), has_threads(["--threads=2"]), has_threads(["-t1"])
    (True, True, False)
    """
    text = " ".join(words)
    return any(int(number) != 1 for number in _NUMBER_OF_THREADS.findall(text))


def architectures(flags: str) -> set[str]:
    """The virtual architectures that flags name: nvcc compiles the devices' half for each.

    >>> sorted(architectures("-gencode arch=compute_80,code=sm_80 -gencode=arch=compute_90a"))
    ['80', '90a']
    """
    return set(re.findall(r"\bcompute_(\w+)", flags))


def relative_paths(flags: str) -> bool:
    """Whether a flag for nvcc may name a path relative to the directory in which it runs.

    >>> relative_paths("--use_fast_math -Xcompiler -O3 -I/usr/include -gencode arch=a,code=b")
    False
    >>> [relative_paths(flags) for flags in ("-I include", "-isystem=include", "--unknown")]
    [True, True, True]
    >>> [relative_paths(f"-ccbin {host}") for host in ("g++-13", "/opt/bin/g++", "./g++")]
    [False, False, True]
    """
    try:
        words = iter(host.split(flags))
    except ValueError:
        return True
    return any(_is_relative(word, words) for word in words)


def _is_relative(word: str, rest: Iterator[str]) -> bool:
    name, _, value = word.partition("=")
    if name in _PASSED_ON:
        value = value or next(rest, "")
        return name not in _TO_NO_FILES and host.relative_paths(value.replace(",", " "))
    if word in _FOLDERS:
        return next(rest, "")[:1] != "/"
    if word in _VALUED:
        next(rest, None)
        return False
    if word == "-ccbin":  # found by PATH if it is no path
        return re.match("[^/]+/", next(rest, "")) is not None
    folder = next((word[len(one) :] for one in _JOINED if word.startswith(one)), None)
    if folder is not None:
        return folder[:1] != "/"
    return word[:1] != "/" and not _PLAIN.fullmatch(word)


def unkeyable(flags: list[str]) -> str | None:
    """The first of a caller's flags for nvcc that is not understood; None when all are."""
    if (reason := host.unkeyable(" ".join(flags))) is not None and not reason.startswith("-"):
        return reason  # the shell's characters
    words = iter(host.split(" ".join(flags)))
    for word in words:
        name, _, value = word.partition("=")
        if (check := _PASSED_ON.get(name)) is not None:
            value = value or next(words, "")
            if (reason := check(value.replace(",", " "))) is not None:
                return f"{name} {reason}"
        elif word in _VALUED:
            next(words, None)
        elif not _PLAIN.fullmatch(word):
            return word
    return None

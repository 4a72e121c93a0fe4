"""The machine code in a unit's object: the host's code is compiled without it, and assembled with
it.

nvcc packs the machine code of all architectures into a C++ file of assembler, which what cudafe++
wrote includes. Here that assembler is a file of its own: an edit of a kernel's body leaves what g++
reads as it was, and what g++ made of it is assembled with another package. The object is the same
byte for byte.
"""

from __future__ import annotations

import re
from pathlib import Path

from warmcc.daemon.cuda import dryrun
from warmcc.daemon.toolchain.flags import folders

ASSEMBLY = "cuda.s"
_DATA = "cuda.fatbin.s"
_LINES = re.compile(
    r'(?<=^"fatbinData:\\n"\n)(?:"\.quad [0-9a-fx, ]+\\n"\n)+(?="\.text\\n"\);$)', re.M
)
_SIZE = re.compile(r"^(extern const unsigned long long fatbinData\[)\d+(?=\];$)", re.M)
# Words with which the driver does not do the same in two steps, or prints what it does.
_WHOLE = re.compile(r"-(?:g|flto|v$|Q|Wa,|Xassembler|time|ftime|pass-exit-codes|no-integrated|#).*")
_HEADERS = (
    "crt/host_runtime.h",
    "fatbinary_section.h",
)  # what the text includes that no prelude has


class Whole(Exception):
    """The unit has to be compiled in one step; the text says why."""


def name(plan: dryrun.NvccPlan) -> str:
    """The file into which fatbinary writes. Raises Whole."""
    if len(plan.fatbinary.packages) != 1:
        raise Whole("fatbinary writes something else")
    return plan.fatbinary.packages[0]


def take_out(folder: Path, package: str) -> None:
    """Have the package include its data as a file of assembler. Raises Whole, OSError.

    The array's size is nobody's to see: the code takes its address.
    """
    text = (folder / package).read_text(encoding="utf-8", errors="surrogateescape")
    found = _LINES.findall(text)
    sized = _SIZE.subn(r"\g<1>", text)
    if len(found) != 1 or sized[1] != 1:
        raise Whole("fatbinary writes its package in another way")
    (folder / _DATA).write_text(found[0].replace('"', "").replace("\\n", ""), encoding="ascii")
    included = _LINES.sub(f'".include \\\\"{_DATA}\\\\"\\\\n"\n', sized[0])
    (folder / package).write_text(included, encoding="utf-8", errors="surrogateescape")


def steps(host: dryrun.NvccCommand, options: list[str], made: str) -> tuple[list[str], list[str]]:
    """The words that compile, with more ``options``, and those that assemble into ``made``. Raises
    Whole.
    """
    words = list(host.options)
    if word := next((word for word in words if _WHOLE.fullmatch(word)), None):
        raise Whole(f"{word} is about the whole compile")
    if words.count("-c") != 1 or words.count("-x") != 1 or words[words.index("-x") + 1] != "c++":
        raise Whole("nvcc calls the host's compiler in another way")
    at = words.index("-x")
    compiling = ["-S" if word == "-c" else word for word in words]
    return [*compiling, host.input, *options, "-o", ASSEMBLY], [
        *words[:at],
        *words[at + 2 :],
        ASSEMBLY,
        "-o",
        made,
    ]


def without_bodies(text: str) -> str:
    r"""What cudafe++ wrote without the kernels' bodies, which it has the preprocessor skip; lines
    stay where they are.

    A body has others in it where it has a local structure or a lambda.

    >>> body = "{ struct s { s();\n#if 0\n{ }\n#endif\n}; }"
    >>> without_bodies(f"void k(int) ;\n#if 0\n{body}\n#endif\nint x;")
    'void k(int) ;\n\n\n\n\n\n\n\nint x;'
    """
    if 'R"' in text or "\n#el" in text:
        return text  # a string may have such lines; what follows an #else is not skipped
    lines, depth = text.split("\n"), 0
    for number, line in enumerate(lines):
        if depth or line == "#if 0":
            depth += line.startswith("#if") - line.startswith("#endif")
            lines[number] = ""
    return "\n".join(lines) if depth == 0 else text


def headers(host: dryrun.NvccCommand) -> list[Path]:
    """Headers of the toolkit that the compile reads behind the prelude."""
    places = [Path(folder, header) for folder in folders(list(host.options)) for header in _HEADERS]
    return [path for path in places if path.exists()]

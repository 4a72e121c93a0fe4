"""How one text without torch's headers is compiled: the words of each compiler, and the names of
the kernels in what it made.

Both sides need this: the daemon, and a client that no daemon serves.
"""

from __future__ import annotations

import re
import struct

from warmcc.request import KernelRequest

_LINKS = r"-[lL].+|-Wl,.+|.+\.(?:so(?:\.\d+)*|a|o)"
_NOWHERE = "/nonexistent/warmcc"
_LANGUAGES = {"cc": "c", "c++": "c++"}
_ENTRY = 0x10  # in st_other of a cubin's symbol: a kernel


class Unnamed(Exception):
    """A kernel is not in what was compiled, or cannot be told from others of its name."""


def source_name(request: KernelRequest) -> str:
    """The file that a program compiles; relative, so that ``__FILE__`` depends on no folder."""
    return {"cc": "functions.c", "c++": "functions.cpp"}.get(request.compiler, "kernel.cu")


def source_text(request: KernelRequest) -> str:
    """What is compiled: the caller's text, under the caller's name for it. nvcc is made to
    instantiate the templates that are wanted; NVRTC does it by itself."""
    text = request.source if request.source.endswith("\n") else f"{request.source}\n"
    if request.compiler == "nvrtc":
        return text  # NVRTC is told the name
    text = f'#line 1 "{request.file}"\n{text}'
    if request.compiler != "nvcc":
        return text
    wanted = [name for name in request.names if "<" in name]
    lines = [
        f"[[maybe_unused]] static void* const warmcc_wanted_{number} = (void*)(&{name});\n"
        for number, name in enumerate(wanted)
    ]
    return text + "".join(lines)


def nvrtc_here(request: KernelRequest) -> tuple[str, str]:
    """Text and path for NVRTC in a process whose working directory is not empty: NVRTC looks in the
    folder of a source for what is included in quotes."""
    text = source_text(request)
    if request.folder is not None:
        return text, request.file
    return f'#line 1 "{request.file}"\n{text}', f"{_NOWHERE}/{request.file}"


def nvrtc_options(request: KernelRequest) -> list[str]:
    """The options for NVRTC."""
    folders = [*filter(None, [request.folder]), *request.include_dirs, *request.system_dirs]
    return [
        f"--gpu-architecture={request.arch}", *request.options,
        *(f"--include-path={folder}" for folder in folders),
    ]  # fmt: skip


def command(request: KernelRequest, argv: list[str], made: str, depends: str) -> list[str]:
    """The command that compiles ``source_name`` to ``made`` with a program, and writes what it
    read to ``depends``."""
    quoted = [] if request.folder is None else [f"-I{request.folder}"]
    folders = [*quoted, *(f"-I{folder}" for folder in request.include_dirs)]
    tracked = ["-MD", "-MF", depends]
    source = source_name(request)
    if request.compiler == "nvcc":
        kind = "-ptx" if request.arch.startswith("compute_") else "-cubin"
        target = [kind, f"-arch={request.arch}"]
        return [*argv, *target, *request.options, *folders, *tracked, "-o", made, source]
    links = [option for option in request.options if re.fullmatch(_LINKS, option)]
    others = [option for option in request.options if not re.fullmatch(_LINKS, option)]
    return [
        *argv, "-O2", "-shared", "-fPIC", *others, *folders, *tracked, "-o", made,
        "-x", _LANGUAGES[request.compiler], source, "-x", "none", *links,
    ]  # fmt: skip


def has_links(request: KernelRequest) -> bool:
    """Whether the caller's options name something to link."""
    return any(re.fullmatch(_LINKS, option) for option in request.options)


def lowered_names(image: bytes, names: list[str]) -> dict[str, str]:
    """The lowered name of each name expression, found among the kernels of a cubin or PTX.
    Raises Unnamed where that is not certain."""
    entries = _entries(image)
    found = {}
    for name in names:
        base = name.partition("<")[0].strip().rpartition("::")[2].strip()
        mangled = re.compile(rf"_Z(?:N.*)?{len(base)}{re.escape(base)}{'I' if '<' in name else ''}")
        fitting = [one for one in entries if one == base or mangled.match(one)]
        if len(fitting) != 1:
            raise Unnamed(
                f"{name} is {len(fitting) or 'none'} of the kernels that nvcc made "
                f'({", ".join(entries) or "none"}); NVRTC (compiler="nvrtc") tells them apart'
            )
        found[name] = fitting[0]
    return found


def _entries(image: bytes) -> list[str]:
    """The kernels' names in PTX, or in the symbols of a cubin (ELF, 64 bits, little-endian)."""
    if image[:4] != b"\x7fELF":
        return re.findall(r"\.entry\s+([\w$]+)", image.decode("utf-8", "replace"))
    (start,) = struct.unpack_from("<Q", image, 40)
    size, count = struct.unpack_from("<HH", image, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", image, start + size * i) for i in range(count)]
    found = []
    for _, kind, _, _, offset, length, link, _, _, each in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        texts = sections[link][4]
        for at in range(offset, offset + length, each or 24):
            name, info, other = struct.unpack_from("<IBB", image, at)
            if info & 15 == 2 and other & _ENTRY:  # STT_FUNC
                end = image.index(b"\0", texts + name)
                found.append(image[texts + name : end].decode())
    return found

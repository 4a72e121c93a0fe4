"""The files that an artifact was made of, named so that another machine can compare its own.

A header below a folder of the call (one of ``extra_include_paths``, the folder of a source, the
build directory) is named relative to that folder. On the other machine it must have the same
content. Where an include path is not there at all, the artifact may be used if the call names the
same path as the one that it was built for: so headers need not be copied along. The same holds for
what flags name by absolute paths. Any other file must be there, and be the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from warmcc.client.bundles import key
from warmcc.client.bundles.layout import Entry, File
from warmcc.contents import Contents
from warmcc.request import Request

_ABSOLUTE = ("named", "fixed")
_contents = Contents()
_Folder = tuple[str, int, str]  # root, number, path


def described(request: Request, read: dict[str, str]) -> list[File]:
    """``read`` are the files that an artifact was made of, with their digests."""
    folders = list(_folders(request))
    sources = set(request.sources)
    found = [
        _file(request, folders, path, content)
        for path, content in sorted(read.items())
        if path not in sources
    ]
    return sorted(found, key=lambda file: (file.root, file.number, file.path))


def _file(request: Request, folders: list[_Folder], path: str, content: str) -> File:
    root, number, relative = _place(request, folders, path)
    beside = list(_beside(folders, root, number, relative))
    return File(root, number, relative, content, beside)  # type: ignore[arg-type]


def _folders(request: Request) -> Iterator[_Folder]:
    """The folders of a call, in the order in which headers are looked for."""
    for number, source in enumerate(request.sources):
        yield "source", number, os.path.dirname(source)
    root = request.environment.get("TORCH_EXTENSIONS_DIR")
    directory = request.build_directory
    if directory is None and root and request.call == "load_inline":
        directory = os.path.join(root, request.name)
    if directory is not None:
        yield "directory", 0, directory
    for number, path in enumerate(request.extra_include_paths):
        yield "include", number, path


def _place(request: Request, folders: list[_Folder], path: str) -> tuple[str, int, str]:
    """The folder that a path is relative to: the nearest one of the call that it lies below; else,
    unless a flag names its place, which is in the key then, one that it lies beside."""
    around = [one for one in folders if path.startswith(one[2].rstrip("/") + "/")]
    if around:
        root, number, folder = max(around, key=lambda one: len(one[2]))
        return root, number, os.path.relpath(path, folder)
    if _is_named(request, path):
        return "named", 0, path
    for root, number, folder in folders:
        if os.path.commonpath([folder, path]) != "/":
            return root, number, os.path.relpath(path, folder)
    return "fixed", 0, path


def _is_named(request: Request, path: str) -> bool:
    """Whether a flag, a variable or a source of the call has a path, or a folder above it."""
    if any(path in text for text in (*request.cpp_sources, *request.cuda_sources)):
        return True
    flags = " ".join(
        [
            *request.extra_cflags, *request.extra_cuda_cflags, *request.extra_ldflags,
            *(request.environment.get(name, "") for name in (*key.VARIABLES, *key.CUDA_VARIABLES)),
        ]
    )  # fmt: skip
    above = path
    while above != "/":
        if re.search(re.escape(above) + r"/?(?![^\s'\",;:])", flags):
            return True
        above = os.path.dirname(above)
    return False


def _beside(folders: list[_Folder], root: str, number: int, relative: str) -> Iterator[str]:
    """The folders in front of a file's that have a file of its name as well."""
    own = next((folder for at, count, folder in folders if (at, count) == (root, number)), None)
    seen = {own}
    for other, count, folder in folders:
        if root in _ABSOLUTE or (other, count) == (root, number):
            return
        if folder not in seen and os.path.lexists(os.path.join(folder, relative)):
            yield f"{other}:{count}"
        seen.add(folder)


def difference(entry: Entry, request: Request) -> str:
    """Why the files of a call here are not those that an artifact was made of; empty when they are.
    Its sources are in the key."""
    folders = list(_folders(request))
    places = {(root, number): folder for root, number, folder in folders}
    for file in entry.files:
        if file.root in _ABSOLUTE:
            if file.root == "fixed" and not os.path.lexists(file.path):
                return f"{file.path} does not exist, and it was built with it"
            if os.path.lexists(file.path) and not _is(file.path, file.digest):
                return f"{file.path} differs from the file that it was built with"
            continue
        folder = places.get((file.root, file.number))
        if folder is None:
            return f"it was built with a file {file.path} in its build directory"
        if file.root == "include" and not os.path.lexists(folder):
            if entry.include_paths[file.number : file.number + 1] == [folder]:
                continue
            return f"{folder} does not exist, so its headers cannot be compared"
        path = os.path.normpath(os.path.join(folder, file.path))
        if not os.path.lexists(path):
            return f"{path} does not exist, and it was built with it"
        if not _is(path, file.digest):
            return f"{path} differs from the file that it was built with"
        if (beside := list(_beside(folders, file.root, file.number, file.path))) != file.beside:
            return f"{file.path} is in other folders than where it was built: {beside}"
    return ""


def _is(path: str, content: str) -> bool:
    try:
        return _contents.are(path, content)
    except OSError:
        return False

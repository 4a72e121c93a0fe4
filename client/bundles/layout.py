"""The index of a bundle: what is in it, for which calls, and what it needs of a machine.

A bundle is a tar archive of ``index.json``, ``index.sha256``, ``index.sig`` if it is signed, and
``files/SHA256`` for each file, in this order. The index names every file with its digest and size,
so that a signature over the index covers all of it. Unpacked, it is a folder whose name is the
digest of its index.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

from warmcc import digest
from warmcc.errors import BundleError

FORMAT = 1
INDEX, CHECK, SIGNATURE = "index.json", "index.sha256", "index.sig"
ARTIFACTS = "torch.compile.artifacts"  # the file of what torch saves of its compiles
TRITON = "triton.groups"  # the file of what Triton has compiled
FROM_BUNDLE = "bundle "  # how the ``way`` of an answer begins
INDEX_LIMIT = 64 << 20  # bytes
_NAME = re.compile(r"[^/\0]{1,250}")

Size = Annotated[int, msgspec.Meta(ge=1, le=1 << 36)]
Root = Literal["source", "directory", "include", "named", "fixed"]


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file that an artifact was made of, beside torch, the toolchain and its sources.

    ``path`` is relative to a folder of the call, which ``root`` and ``number`` name: that of a
    source, the build directory, or one of ``extra_include_paths``. ``beside`` are the folders in
    front of it that have a file of this name as well, as ``root:number``. Other paths are absolute:
    ``named`` by a flag or a text of the call, so that the key has them, or ``fixed``.
    """

    root: Root
    number: int
    path: str
    digest: str
    beside: list[str] = []


class Needs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an artifact needs of the machine that loads it.

    ``abi`` is the suffix of Python's extension modules; ``cuda`` the CUDA version of torch, or
    empty; ``symbols`` the highest version per library (``{"GLIBC": "2.34"}``); ``processor`` the
    abilities of the processor that it was built for by ``-march=native``; ``libraries`` are those
    that it names, ``search`` its own folders for them; ``architectures`` those of its machine code
    (``sm_90``) and PTX (``compute_90``) for GPUs.
    """

    machine: str
    abi: str
    torch: str
    torch_git: str
    cuda: str
    cxx11_abi: bool
    symbols: dict[str, str] = {}
    processor: list[str] = []
    libraries: list[str] = []
    search: str = ""
    architectures: list[str] = []


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One artifact. ``key`` is what a call comes to on any machine, made of ``parts`` (digests by
    name); ``shown`` are the short ones of them for people. ``file`` is the content's digest,
    ``file_name`` what it is called. ``include_paths`` are the call's, as they were given."""

    name: str
    key: str
    file: str
    file_name: str
    size: Size
    parts: dict[str, str]
    shown: dict[str, str]
    needs: Needs
    files: list[File] = []
    include_paths: list[str] = []


class Index(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of a bundle. ``signer`` is the public key that it is signed with, or empty."""

    format: int
    made_by: str
    entries: list[Entry]
    signer: str = ""

    def files(self) -> dict[str, int]:
        """The files' digests in their order, with their sizes."""
        return {one.file: one.size for one in sorted(self.entries, key=lambda entry: entry.file)}


class _Head(msgspec.Struct):
    format: int


def key_of(parts: dict[str, str]) -> str:
    """The key of a call's parts."""
    return digest.of_value([FORMAT, sorted(parts.items())])


def encode(index: Index) -> bytes:
    """The same index gives the same bytes. Raises BundleError for one that is too large."""
    data = msgspec.json.encode(index, order="deterministic")
    if len(data) > INDEX_LIMIT:
        raise BundleError(f"the bundle's index is larger than {INDEX_LIMIT >> 20} MiB; make two")
    return data


def decode(data: bytes) -> Index:
    """Raises BundleError for an index that is damaged, contradicts itself or is a newer one."""
    try:
        if (found := msgspec.json.decode(data, type=_Head).format) != FORMAT:
            raise BundleError(
                f"the bundle has format {found}, and this warmcc reads {FORMAT}; make the bundle "
                "with the version of warmcc that loads it"
            )
        index = msgspec.json.decode(data, type=Index)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BundleError(f"the bundle's index is damaged: {error}") from None
    sizes: dict[str, int] = {}
    for entry in index.entries:
        if (reason := _fault(entry)) or sizes.setdefault(entry.file, entry.size) != entry.size:
            raise BundleError(f"the bundle's index is damaged: {reason or 'two sizes of one file'}")
    return index


def _fault(entry: Entry) -> str:
    if not digest.is_digest(entry.file):
        return "a digest is none"
    if not _NAME.fullmatch(entry.file_name) or entry.file_name in (".", ".."):
        return f"{entry.file_name!r} is no name of a file"
    if entry.key != key_of(entry.parts):
        return f"the key of {entry.name!r} is not that of its parts"
    return ""

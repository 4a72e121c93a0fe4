"""Bundles as files: a tar archive whose bytes are known from its content, compressed.

There is one way to write a member's header, and a reader that takes nothing else: no links, paths,
devices, extensions or dates. Sizes are known before anything is read, so that a small file cannot
become a large one.
"""

from __future__ import annotations

import contextlib
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

from warmcc.errors import BundleError

_BLOCK = 512
_CHUNK = 1 << 20
_WINDOW = 1 << 27  # memory for a compressed file's history, in bytes
_END = bytes(2 * _BLOCK)
_MAGIC = {b"\x1f\x8b": ".tar.gz", b"\xfd7zXZ\0": ".tar.xz", b"\x28\xb5\x2f\xfd": ".tar.zst"}
SUFFIXES = (".tar.gz", ".tar.xz", ".tar.zst", ".tar")


def header(name: str, size: int) -> bytes:
    """The header of a member, which is a regular file of nobody's and of no time."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    return member.tobuf(tarfile.USTAR_FORMAT, "ascii")


def suffix_of(path: str) -> str:
    """The form of a bundle, by the end of its name. Raises BundleError."""
    found = next((one for one in SUFFIXES if path.endswith(one)), None)
    if found is None:
        raise BundleError(f"{path}: the name of a bundle ends in one of {', '.join(SUFFIXES)}")
    if found == ".tar.zst":
        _zstandard(path)
    return found


def _zstandard(path: str) -> Any:
    try:
        import zstandard
    except ImportError:
        raise BundleError(
            f"{path}: .tar.zst needs the package zstandard: pip install 'warmcc[zstd]'; "
            ".tar.gz and .tar.xz need none"
        ) from None
    return zstandard


# ---------------------------------------------------------------------- writing


class Writer:
    """Writes a bundle of one form into an open file."""

    def __init__(self, file: IO[bytes], suffix: str) -> None:
        self._is_compressed = suffix != ".tar"
        if suffix == ".tar.gz":
            self._out: Any = gzip.GzipFile("", "wb", 6, file, mtime=0)
        elif suffix == ".tar.xz":
            self._out = lzma.LZMAFile(file, "wb", preset=6)  # noqa: SIM115
        elif suffix == ".tar.zst":
            compressor = _zstandard("").ZstdCompressor(level=10)
            self._out = compressor.stream_writer(file, closefd=False)
        else:
            self._out = file

    def add(self, name: str, size: int, chunks: Iterator[bytes]) -> None:
        """Raises BundleError where the chunks are not as many bytes as was said."""
        self._out.write(header(name, size))
        written = 0
        for chunk in chunks:
            written += len(chunk)
            self._out.write(chunk)
        if written != size:
            raise BundleError(f"{name} changed while it was packed")
        self._out.write(bytes(-size % _BLOCK))

    def close(self) -> None:
        """Finish the archive; the file stays open."""
        self._out.write(_END)
        if self._is_compressed:
            self._out.close()


# ---------------------------------------------------------------------- reading

_DAMAGE: tuple[type[Exception], ...] = (zlib.error, EOFError, gzip.BadGzipFile, lzma.LZMAError)


class Reader:
    """Reads the members of a bundle in their order. Raises BundleError for anything that a Writer
    would not have written, and OSError."""

    def __init__(self, file: IO[bytes], path: str) -> None:
        self._path = path
        start = file.read(6)
        file.seek(0)
        suffix = next((one for magic, one in _MAGIC.items() if start.startswith(magic)), ".tar")
        self._damage = _DAMAGE
        self._in: Any = file
        if suffix == ".tar.gz":
            self._in = gzip.GzipFile(fileobj=file)
        elif suffix == ".tar.xz":
            self._in = _Xz(file)
        elif suffix == ".tar.zst":
            zstandard = _zstandard(path)
            self._damage = (*_DAMAGE, zstandard.ZstdError)
            self._in = zstandard.ZstdDecompressor(max_window_size=_WINDOW).stream_reader(
                file, read_across_frames=True
            )

    def _damaged(self, reason: str) -> BundleError:
        return BundleError(f"{self._path}: not a bundle, or a damaged one: {reason}")

    def _read(self, size: int) -> bytes:
        """Up to ``size`` bytes; fewer only at the end."""
        parts = []
        with self._told():
            while size and (part := self._in.read(min(size, _CHUNK))):
                parts.append(part)
                size -= len(part)
        return b"".join(parts)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except self._damage as error:
            raise self._damaged(str(error)) from None

    def next(self, limits: dict[str, int]) -> tuple[str, int]:
        """The name and size of the next member, which is one of ``limits``' names, and no larger
        than that."""
        block = self._read(_BLOCK)
        name = block[:100].rstrip(b"\0").decode("ascii", "replace")
        try:
            size = int(block[124:135], 8)
        except ValueError:
            size = -1
        if name not in limits:
            raise self._damaged(f"unexpected member {name[:80]!r}")
        if not 0 <= size <= limits[name]:
            raise self._damaged(f"{name} has a wrong size")
        if block != header(name, size):
            raise self._damaged(f"the header of {name} is not one of a bundle")
        return name, size

    def content(self, name: str, size: int, put: Callable[[bytes], Any]) -> None:
        """The content of the member that ``next`` has told, in pieces."""
        left = size
        while left:
            part = self._read(min(left, _CHUNK))
            if not part:
                raise self._damaged(f"it ends within {name}")
            put(part)
            left -= len(part)
        if self._read(-size % _BLOCK) != bytes(-size % _BLOCK):
            raise self._damaged(f"wrong bytes behind {name}")

    def small(self, name: str, size: int) -> bytes:
        """The content of a member as one text."""
        parts: list[bytes] = []
        self.content(name, size, parts.append)
        return b"".join(parts)

    def end(self) -> None:
        """Check that the bundle ends here."""
        if self._read(len(_END) + 1) != _END:
            raise self._damaged("it does not end where its index ends")


class _Xz:
    """Reads xz with bounded memory, which LZMAFile does not."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._state = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=2 * _WINDOW)

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes; none at the end."""
        while not self._state.eof:
            given = self._file.read(_CHUNK) if self._state.needs_input else b""
            if self._state.needs_input and not given:
                raise EOFError("it ends too early")
            if found := self._state.decompress(given, size):
                return found
        if self._state.unused_data or self._file.read(1):
            raise lzma.LZMAError("more data behind its end")
        return b""

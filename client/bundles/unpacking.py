"""``warmcc.unpack``: check a bundle as a whole, and only then let anything of it be seen.

It is unpacked into a hidden folder beside its place, and renamed. What a killed process leaves is
hidden, and removed by the next one: the hidden folder's lock says whether its process lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from warmcc import config, digest, paths, signing
from warmcc.client.bundles import archive, layout
from warmcc.client.bundles.layout import CHECK, INDEX, SIGNATURE, Entry, Index
from warmcc.errors import BundleError, DaemonError

_HIDDEN = ".unpacking-"
_FILES = "files/"


class Bundle(NamedTuple):
    """A bundle. ``id`` is the digest of its index, ``path`` a file or the folder that it was
    unpacked to, ``signer`` the trusted key that it is signed with, or empty."""

    id: str
    path: str
    artifacts: list[str]
    signer: str


class _Opened(NamedTuple):
    content: Index
    data: bytes
    signature: bytes | None
    bundle: Bundle


def unpack(path: str | os.PathLike[str], to: str | os.PathLike[str] | None = None) -> Bundle:
    """Check a bundle, and unpack it into ``to`` (default: the folder of bundles), where calls find
    it. Once more changes nothing.

    Raises BundleError for a bundle that is damaged, not signed as ``bundle_trust`` wants it, or
    that cannot be written; ConfigError for wrong settings. Nothing is left behind then.
    """
    source, folder = os.fspath(path), _folder(to)
    _remove_leftovers(folder)
    try:
        with open(source, "rb") as file, _hidden(folder) as hidden:
            reader = archive.Reader(file, source)
            opened = _open(reader, source)
            _check_room(folder, opened.content)
            for content, size in opened.content.files().items():
                _take(reader, content, size, hidden)
            reader.end()
            _arrange(hidden, opened)
            place = folder / opened.bundle.id
            _put(hidden, place, opened)
            return opened.bundle._replace(path=str(place))
    except OSError as error:
        raise BundleError(f"{error.filename or source}: {error.strerror or error}") from None


def look(path: str | os.PathLike[str]) -> tuple[Bundle, list[Entry]]:
    """What is in a bundle, without unpacking it: its index is checked, and its files are not.
    Raises as ``unpack``."""
    source = os.fspath(path)
    try:
        with open(source, "rb") as file:
            opened = _open(archive.Reader(file, source), source)
    except OSError as error:
        raise BundleError(f"{source}: {error.strerror or error}") from None
    return opened.bundle, opened.content.entries


def _folder(to: str | os.PathLike[str] | None) -> Path:
    folder = paths.bundles_dir() if to is None else Path(os.path.abspath(to))
    try:
        if to is None and folder.parent == paths.cache_dir():
            paths.private_dir(folder.parent)
        return paths.private_dir(folder)
    except DaemonError as error:
        raise BundleError(str(error)) from None
    except OSError as error:
        raise BundleError(f"{folder} cannot be made: {error.strerror}") from None


def _open(reader: archive.Reader, source: str) -> _Opened:
    """Read and check the index of a bundle."""
    name, size = reader.next({INDEX: layout.INDEX_LIMIT})
    data = reader.small(name, size)
    name, size = reader.next({CHECK: 64})
    found = digest.of_bytes(data)
    if reader.small(name, size) != found.encode():
        raise BundleError(f"{source}: the bundle is damaged: its index does not match its digest")
    index = layout.decode(data)
    signature = None
    if index.signer:
        signature = reader.small(*reader.next({SIGNATURE: signing.SIZE}))
    trusted = config.load().bundle_trust
    signer = signing.check(data, signature, trusted, source) if trusted else ""
    names = [entry.name for entry in index.entries]
    return _Opened(index, data, signature, Bundle(found, source, names, signer))


def _check_room(folder: Path, index: Index) -> None:
    needed, free = sum(index.files().values()), shutil.disk_usage(folder).free
    if needed > free:
        raise BundleError(
            f"{folder} has no room for the bundle: it needs {needed >> 20} MiB, and "
            f"{free >> 20} MiB are free"
        )


def _take(reader: archive.Reader, content: str, size: int, hidden: Path) -> None:
    """Unpack one file, and check it."""
    name, found = reader.next({f"{_FILES}{content}": size})
    if found != size:
        raise BundleError(f"the bundle is damaged: {name} has not the size that its index has")
    state = hashlib.sha256()
    with open(hidden / content, "xb") as file:

        def put(part: bytes) -> None:
            state.update(part)
            file.write(part)

        reader.content(name, size, put)
        file.flush()
        os.fsync(file.fileno())
    if state.hexdigest() != content:
        raise BundleError(f"the bundle is damaged: {name} does not match its digest")


def _arrange(hidden: Path, opened: _Opened) -> None:
    """Give the files their names, and put the index beside them."""
    for entry in opened.content.entries:
        place = hidden / f"{entry.file}.d"
        place.mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.link(hidden / entry.file, place / entry.file_name)
    for content in opened.content.files():
        (hidden / content).chmod(0o555)
        (hidden / content).unlink()
        (hidden / f"{content}.d").rename(hidden / content)
    written = {INDEX: opened.data, SIGNATURE: opened.signature}
    for name, data in written.items():
        if data is not None:
            with open(hidden / name, "xb") as file:
                file.write(data)
                os.fchmod(file.fileno(), 0o444)
                file.flush()
                os.fsync(file.fileno())


def file_of(folder: str, entry: Entry) -> str:
    """Where an artifact of an unpacked bundle is."""
    return f"{folder}/{entry.file}/{entry.file_name}"


def _put(hidden: Path, place: Path, opened: _Opened) -> None:
    """Rename a checked folder to its place. One that is there is kept if it is whole."""
    for _ in range(3):
        with contextlib.suppress(OSError):
            if _is_whole(place, opened):
                return
        if os.path.lexists(place):
            old = hidden.with_name(f"{hidden.name}-old")
            with contextlib.suppress(FileNotFoundError):  # another process has moved it
                place.rename(old)
            _discard(old)
        with contextlib.suppress(OSError):
            hidden.rename(place)
            _sync(place.parent)
            return
    raise BundleError(f"{place} cannot be written: another process changes it")


def _is_whole(place: Path, opened: _Opened) -> bool:
    """Raises OSError."""
    if (place / INDEX).read_bytes() != opened.data:
        return False
    if opened.signature is not None and (place / SIGNATURE).read_bytes() != opened.signature:
        return False
    return all(
        digest.of_file(file_of(str(place), entry)) == entry.file for entry in opened.content.entries
    )


def _sync(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)


@contextlib.contextmanager
def _hidden(folder: Path) -> Iterator[Path]:
    """A folder to unpack in, which is locked, and removed unless it was renamed. Raises OSError."""
    while (locked := _locked(folder / f"{_HIDDEN}{os.urandom(8).hex()}")) is None:
        pass  # another process took it for a leftover before it was locked
    path, number = locked
    try:
        yield path
    finally:
        _discard(path)
        os.close(number)


def _locked(path: Path) -> tuple[Path, int] | None:
    path.mkdir(mode=0o755)
    try:
        number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    fcntl.flock(number, fcntl.LOCK_EX)
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(number), os.stat(path)):
            return path, number
    os.close(number)
    return None


def _discard(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def _remove_leftovers(folder: Path) -> None:
    """Remove what processes that were killed have left."""
    for path in folder.glob(f"{_HIDDEN}*"):
        with contextlib.suppress(OSError):
            number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _discard(path)
            finally:
                os.close(number)


# ---------------------------------------------------------------------- what is unpacked


def unpacked() -> list[str]:
    """The ids of the unpacked bundles. Raises BundleError for a folder that is not safe."""
    folder = paths.bundles_dir()
    try:
        check_owner(folder)
        return sorted(name for name in os.listdir(folder) if digest.is_digest(name))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BundleError(f"{folder} cannot be read: {error.strerror}") from None


def check_owner(folder: Path) -> None:
    """A folder of bundles must be this user's or root's, and not open to the writing of others.
    Raises BundleError, OSError."""
    found = folder.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise BundleError(f"{folder} is not a folder; remove it, or set WARMCC_BUNDLES")
    if found.st_uid not in (os.getuid(), 0) or found.st_mode & 0o022:
        raise BundleError(
            f"{folder} can be written by other users, so bundles in it cannot be trusted; make it "
            "yours (chown, chmod 700), or set WARMCC_BUNDLES"
        )


def remove(id: str) -> str:  # noqa: A002
    """Remove the unpacked bundle whose id begins so; returns the id. What has loaded an artifact of
    it goes on. Raises BundleError."""
    found = [one for one in unpacked() if one.startswith(id)] if id else []
    if len(found) != 1:
        raise BundleError(
            f"{len(found) or 'no'} unpacked bundles have an id that begins with {id!r}"
        )
    folder = paths.bundles_dir()
    gone = folder / f"{_HIDDEN}{os.urandom(8).hex()}"
    try:
        (folder / found[0]).rename(gone)
        shutil.rmtree(gone)
    except OSError as error:
        raise BundleError(f"{error.filename} cannot be removed: {error.strerror}") from None
    return found[0]

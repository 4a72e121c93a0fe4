"""Find the artifact of a call in the unpacked bundles, without a daemon.

Each index is read once per process and folder, and its signature is checked then; the folder's
times show what is unpacked later. An artifact is read, and its digest compared, before it is used;
a file that looks the same afterwards (inode, size, times) is not read again.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from warmcc import config, digest, paths, signing
from warmcc.client import notices
from warmcc.client.bundles import files, identity, key, layout
from warmcc.client.bundles.layout import FROM_BUNDLE, INDEX, SIGNATURE, Entry
from warmcc.client.bundles.unpacking import check_owner, file_of
from warmcc.client.connection.offline import is_offline
from warmcc.errors import BundleError, OfflineError, WarmccWarning
from warmcc.protocol import Built
from warmcc.request import Request

_Look = tuple[int, int, int, int, int]
_STEP = 1_000_000_000  # nanoseconds: a file system's clock takes steps
_LISTED = 8
_VARIANT = re.compile(r"_[0-9a-f]{12}$")  # the end of a prebuilt variant's name


class Kept(NamedTuple):
    """An entry of an unpacked bundle."""

    folder: str
    entry: Entry


class Bundles(NamedTuple):
    """The unpacked bundles, as they were when their folder looked so (path, inode, time) and these
    keys were trusted. ``refused`` says why some are not used."""

    look: tuple[str, int, int, str]
    by_key: dict[str, list[Kept]]
    refused: list[str]


_known: Bundles | None = None
_verified: dict[str, _Look] = {}
_mismatch: dict[tuple[str, str, str], str] = {}


def answer(request: Request) -> Built | None:
    """The artifact of a call from a bundle, verified.

    None where there is none, or where it does not fit this machine, of which the user is warned.
    Imports torch if there is one. Raises OfflineError in these cases with WARMCC_OFFLINE; OSError
    for a source that cannot be read.
    """
    started = time.monotonic()
    values = key.values(request, {path: digest.of_file(path) for path in request.sources})
    parts = key.parts(values)
    try:
        bundles = _bundles()
    except BundleError as error:
        if is_offline():
            raise OfflineError(f"WARMCC_OFFLINE is set: {error}") from None
        notices.warn_once(f"{error}\nBundles are not used.", WarmccWarning)
        return None
    refusals = list(bundles.refused)
    for kept in bundles.by_key.get(layout.key_of(parts), ()):
        if not (reason := _why_not(kept, request)):
            path = file_of(kept.folder, kept.entry)
            way = f"{FROM_BUNDLE}{os.path.basename(kept.folder)[:12]}"
            return Built(0, path, "hit", time.monotonic() - started, way=way)
        refusals.append(
            f"{request.name!r} of bundle {os.path.basename(kept.folder)[:12]} cannot be used here: "
            f"{reason}"
        )
    if is_offline():
        raise OfflineError(_not_found(request, values, parts, bundles, refusals))
    for text in refusals:
        notices.warn_once(f"{text}\nIt is built instead.", WarmccWarning)
    return None


def has(name: str) -> bool:
    """Whether an unpacked bundle has an artifact of a name. Raises BundleError, ConfigError."""
    return any(kept.entry.name == name for kept in _all(_bundles()))


def data(name: str) -> Iterator[str]:
    """The files of a name that no loader loads, from all unpacked bundles that fit this machine,
    verified. Imports torch. Raises BundleError for a damaged one, ConfigError."""
    for kept in _all(_bundles()):
        path = file_of(kept.folder, kept.entry)
        if kept.entry.file_name != name or identity.mismatch(kept.entry.needs, identity.here()):
            continue
        if reason := _damage(path, kept.entry):
            raise BundleError(reason)
        yield path


def _all(bundles: Bundles) -> list[Kept]:
    return [kept for several in bundles.by_key.values() for kept in several]


def _why_not(kept: Kept, request: Request) -> str:
    """Why an entry cannot be used for a call here; empty when it can."""
    entry = kept.entry
    known = (kept.folder, entry.key, entry.file)
    if known not in _mismatch:
        _mismatch[known] = identity.mismatch(entry.needs, identity.here())
    reason = _mismatch[known] or files.difference(entry, request)
    if not reason and not request.is_standalone:
        reason = identity.missing_library(entry.needs)
    if not reason:
        reason = _damage(file_of(kept.folder, entry), entry)
    return reason


def _damage(path: str, entry: Entry) -> str:
    """Why a file is not the one that was packed; empty when it is."""
    try:
        look = _look(path)
        if _verified.get(path) == look:
            return ""
        is_file = stat.S_ISREG(os.lstat(path).st_mode)
        if not is_file or look[2] != entry.size or digest.of_file(path) != entry.file:
            return f"{path} is damaged; unpack the bundle again"
        if _look(path) != look:
            return f"{path} changes"
    except OSError as error:
        return f"{path}: {error.strerror}; unpack the bundle again"
    if look[-1] < time.time_ns() - _STEP:  # a change from now on shows
        _verified[path] = look
    return ""


def _look(path: str) -> _Look:
    found = os.lstat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


# ---------------------------------------------------------------------- the indexes


def _bundles() -> Bundles:
    """Raises BundleError for a folder that others can write, ConfigError."""
    global _known
    folder = paths.bundles_dir()
    try:
        found = folder.stat()
    except FileNotFoundError:
        return Bundles((str(folder), 0, 0, ""), {}, [])
    except OSError as error:
        raise BundleError(f"{folder} cannot be read: {error.strerror}") from None
    look = str(folder), found.st_ino, found.st_mtime_ns, os.environ.get("WARMCC_BUNDLE_TRUST", "")
    known = _known
    if known is not None and known.look == look:
        return known
    known = _read(folder, look)
    if found.st_mtime_ns < time.time_ns() - _STEP:  # what is unpacked from now on shows
        _known = known
    return known


def _read(folder: Path, look: tuple[str, int, int, str]) -> Bundles:
    try:
        check_owner(folder)
        names = sorted(filter(digest.is_digest, os.listdir(folder)))
    except OSError as error:
        raise BundleError(f"{folder} cannot be read: {error.strerror}") from None
    trusted = config.load().bundle_trust if names else []
    bundles = Bundles(look, {}, [])
    for name in names:
        _add(bundles, folder / name, trusted)
    return bundles


def _add(bundles: Bundles, folder: Path, trusted: list[str]) -> None:
    try:
        for entry in read(folder, trusted):
            bundles.by_key.setdefault(entry.key, []).append(Kept(str(folder), entry))
    except FileNotFoundError:
        pass  # it is being removed
    except BundleError as error:
        bundles.refused.append(str(error))
    except OSError as error:
        bundles.refused.append(f"bundle {folder.name[:12]} cannot be read: {error.strerror}")


def read(folder: Path, trusted: list[str]) -> list[Entry]:
    """The entries of an unpacked bundle, checked. Raises BundleError, ConfigError, OSError."""
    data, name = (folder / INDEX).read_bytes(), f"bundle {folder.name[:12]}"
    if digest.of_bytes(data) != folder.name:
        raise BundleError(f"{name} is damaged: its index has changed; unpack it again")
    if trusted:
        signature = None
        with contextlib.suppress(FileNotFoundError):
            signature = (folder / SIGNATURE).read_bytes()
        signing.check(data, signature, trusted, name)
    return layout.decode(data).entries


# ---------------------------------------------------------------------- what is missing


def _not_found(
    request: Request, values: dict[str, object], parts: dict[str, str], bundles: Bundles,
    refusals: list[str],
) -> str:  # fmt: skip
    """The error of a call that may not be built."""
    lines = [f"WARMCC_OFFLINE is set, and no unpacked bundle has {request.name!r} for this call."]
    lines += refusals
    all_kept = _all(bundles)
    names = sorted({kept.entry.name for kept in all_kept})
    more = ", …" if len(names) > _LISTED else ""
    count = len({kept.folder for kept in all_kept})
    lines.append(
        f"Looked in {bundles.look[0]}: {count} bundles"
        + (f" with {', '.join(names[:_LISTED])}{more}" if names else "")
    )
    if not refusals and (near := _nearest(request, parts, all_kept)) is not None:
        lines.append(_difference(near, values, parts))
    elif any(_VARIANT.sub("", name) == _VARIANT.sub("", request.name) for name in names):
        lines.append(
            "Other variants of this package are there: a variant's name depends on its sources, "
            "its flags and its architectures (in a spec: `architectures`)."
        )
    lines.append(
        "Build it where there is a compiler (`warmcc pack`), and unpack the bundle here, or unset "
        "WARMCC_OFFLINE."
    )
    return "\n".join(lines)


def _differing(entry: Entry, parts: dict[str, str]) -> list[str]:
    names = {*entry.parts, *parts}
    return sorted(name for name in names if entry.parts.get(name) != parts.get(name))


def _nearest(request: Request, parts: dict[str, str], kept: list[Kept]) -> Kept | None:
    """The entry of the same name that differs in the fewest parts."""
    same = [one for one in kept if one.entry.name == request.name]
    return min(same, key=lambda one: len(_differing(one.entry, parts)), default=None)


def _difference(near: Kept, values: dict[str, object], parts: dict[str, str]) -> str:
    own = key.shown(values)
    told = []
    for name in _differing(near.entry, parts):
        there, here = near.entry.shown.get(name), own.get(name)
        told.append(
            f"{name} (the bundle has {there or 'none'}, the call {here or 'none'})"
            if there or here
            else name
        )
    text = (
        f"The nearest is {near.entry.name!r} of bundle {os.path.basename(near.folder)[:12]}, which "
        f"differs in: {', '.join(told)}"
    )
    if "module_name" in _differing(near.entry, parts):
        text += (
            "\nThis process has loaded another extension of this name before, so the module has a "
            "number: pack a script that does the same (warmcc pack --record), or rename one of them"
        )
    return text

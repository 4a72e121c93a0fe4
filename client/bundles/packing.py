"""``warmcc.pack``: artifacts into a bundle. The same artifacts give the same bytes."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator
from typing import Any

from warmcc import config, digest, signing
from warmcc.client.bundles import archive, drafts, identity, layout, packages
from warmcc.client.bundles.drafts import Draft
from warmcc.client.bundles.layout import CHECK, INDEX, SIGNATURE, Entry, Index
from warmcc.client.bundles.torch_look import torch_look
from warmcc.client.bundles.unpacking import Bundle
from warmcc.errors import BundleError
from warmcc.version import __version__

_CHUNK = 1 << 20


def pack(
    path: str | os.PathLike[str], artifacts: Iterable[Any], *, key: str | None = None
) -> Bundle:
    """Write a bundle of artifacts, for ``warmcc.unpack`` on another machine.

    ``artifacts`` are ``Artifact`` objects, names of extensions, keys as ``warmcc cache ls`` shows
    them, or folders of packages that ``warmcc.prebuild`` has written; the end of ``path`` is
    ``.tar.gz``, ``.tar.xz``, ``.tar.zst`` (with the package zstandard) or ``.tar``. ``key`` is the
    file of the private key that signs it (default: the setting ``bundle_key``).

    Raises BundleError for what cannot be packed, ConfigError for a wrong key, DaemonError where
    the daemon is needed for names, and is not there. No file is left then.
    """
    given = artifacts if _is_many(artifacts) else [artifacts]
    target = os.fspath(path)
    archive.suffix_of(target)  # in front of all work
    try:
        return write(target, _drafts(given), key)
    except OSError as error:
        raise BundleError(f"{error.filename or target}: {error.strerror or error}") from None


def _is_many(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str)


def _drafts(given: Iterable[Any]) -> list[Draft]:
    found: list[Draft] = []
    for one in given:
        if isinstance(one, (str, os.PathLike)):
            name = os.fspath(one)
            found += packages.stored(name) if packages.is_package(name) else drafts.stored(name)
        elif hasattr(one, "_answer"):
            found.append(drafts.of_artifact(one))
        else:
            raise BundleError(f"{one!r} is neither an Artifact nor a name")
    if not found:
        raise BundleError("nothing to pack: give artifacts, or names of extensions")
    return found


def write(target: str, made: list[Draft], key: str | None) -> Bundle:
    """Write a bundle of drafts. Raises BundleError, ConfigError, OSError."""
    suffix = archive.suffix_of(target)
    path = key or config.load().bundle_key
    signer = signing.Signer(os.path.expanduser(path)) if path else None
    entries = list(_entries(made))
    index = Index(layout.FORMAT, __version__, entries, signer.public if signer else "")
    data = layout.encode(index)
    signature = signer.sign(data) if signer else None
    places = {draft.file: draft.path for draft in made}
    with _replacing(target) as draft, open(draft, "wb") as file:
        out = archive.Writer(file, suffix)
        out.add(INDEX, len(data), iter([data]))
        out.add(CHECK, 64, iter([digest.of_bytes(data).encode()]))
        if signature is not None:
            out.add(SIGNATURE, len(signature), iter([signature]))
        for content, size in index.files().items():
            out.add(f"files/{content}", size, _chunks(places[content], content))
        out.close()
        file.flush()
        os.fsync(file.fileno())
    names = [entry.name for entry in entries]
    return Bundle(digest.of_bytes(data), target, names, signer.public if signer else "")


def _entries(made: list[Draft]) -> Iterator[Entry]:
    """In a fixed order, each once."""
    found: dict[tuple[str, str, str], Entry] = {}
    for draft in made:
        python = draft.request.interpreter
        if torch_look(python.torch_dir) != draft.torch:
            raise BundleError(
                f"torch was installed again since {draft.request.name!r} was built; build it again"
            )
        known = identity.of_interpreter(python, draft.torch)
        if draft.file_name in (layout.ARTIFACTS, layout.TRITON):
            needs = identity.of_data(known)
        else:
            needs = identity.of_file(draft.path, draft.request, draft.commands, known)
        entry = Entry(
            draft.request.module_name, layout.key_of(draft.parts), draft.file, draft.file_name,
            os.path.getsize(draft.path), draft.parts, draft.shown, needs, draft.files,
            draft.request.extra_include_paths,
        )  # fmt: skip
        found[(entry.name, entry.key, entry.file)] = entry
    for _, entry in sorted(found.items()):
        yield entry


def _chunks(path: str, content: str) -> Iterator[bytes]:
    """The content of a file. Raises BundleError where it is not the one that the index has."""
    state = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(_CHUNK):
            state.update(part)
            yield part
    if state.hexdigest() != content:
        raise BundleError(f"{path} changed while it was packed")


@contextlib.contextmanager
def _replacing(target: str) -> Iterator[str]:
    """A new file that takes the target's place when it is complete. Raises OSError."""
    draft = f"{target}.{os.urandom(8).hex()}.part"
    try:
        yield draft
        os.replace(draft, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise

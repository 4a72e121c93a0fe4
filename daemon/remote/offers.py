"""Offers: what a remote store has under one key.

    file   = sha256(payload) payload
    payload = msgpack [[manifest, signature], ...]     the newest first, at most 8

An offer's ``manifest`` is that of a store (``store/manifest.py``) with one result, whose closure
names header sets by content. Each offer is signed alone (``signature`` is empty where it is not):
who adds one to the others' cannot sign for them.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from warmcc import signing
from warmcc.daemon.remote.places import Trouble
from warmcc.daemon.store import Result
from warmcc.daemon.store.manifest import Damaged, decode, encode
from warmcc.errors import BundleError, ConfigError

MOST = 8
LIMIT = 32 << 20  # bytes of one file
FILE_LIMIT = 256 << 20  # bytes of an artifact


class Offer(msgspec.Struct, frozen=True, array_like=True):
    """A result as its writer offers it."""

    manifest: bytes
    signature: bytes = b""


class _Meta(msgspec.Struct, forbid_unknown_fields=True):
    """What every answer with a result needs; ``output`` is an object's."""

    commands: list[str]
    sources: dict[str, str]
    warnings: list[str]
    way: str
    makers: list[str]
    output: str | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Offer]).decode


def packed(offers: list[Offer]) -> bytes:
    """The file of some offers."""
    payload = _encode(offers[:MOST])
    return hashlib.sha256(payload).digest() + payload


def unpacked(data: bytes) -> list[Offer]:
    """Raises Trouble for a file that is damaged."""
    if hashlib.sha256(memoryview(data)[32:]).digest() != data[:32]:
        raise Trouble("damaged", "the digest of the offers does not match")
    try:
        return _decode(memoryview(data)[32:])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Trouble("damaged", f"the offers are damaged: {error}") from None


def made(key: str, result: Result, signer: signing.Signer | None) -> Offer:
    """The offer of a result."""
    manifest = encode("artifact", key, [result])
    return Offer(manifest, signer.sign(manifest, signing.RESULT) if signer is not None else b"")


def read(offer: Offer, key: str, name: str, trusted: list[str]) -> Result:
    """The result of an offer, checked: signed with a ``trusted`` key (none: it need not be), made
    for ``key``, and the file of a module with this ``name``. Raises Trouble."""
    if trusted:
        try:
            signing.check(
                offer.manifest, offer.signature or None, trusted, "a result", signing.RESULT
            )
        except (BundleError, ConfigError) as error:
            raise Trouble("not signed", str(error)) from None
    try:
        (result,) = decode("artifact", key, offer.manifest)
        _check(result, name)
    except (Damaged, msgspec.ValidationError, ValueError, RecursionError) as error:
        raise Trouble("damaged", f"a result is damaged: {error}") from None
    return result


def _check(result: Result, name: str) -> None:
    """Raises ValueError, msgspec.ValidationError for what no daemon of this version writes."""
    meta: _Meta = msgspec.convert(result.meta, _Meta)
    if result.name not in (name, f"{name}.so"):
        raise ValueError(f"it is called {result.name!r}, and not as {name!r}")
    if not 0 < result.size <= FILE_LIMIT:
        raise ValueError(f"it has {result.size} bytes")
    if any(one in (".", "..") or "/" in one or "\0" in one for one in meta.sources):
        raise ValueError("its sources are no plain file names")


def public(meta: dict[str, Any]) -> dict[str, Any]:
    """What others may know of a ``meta``."""
    return {name: meta[name] for name in _Meta.__struct_fields__ if name in meta}

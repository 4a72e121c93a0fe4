"""Manifests: what the store knows under one key, as bytes that check themselves."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from warmcc.daemon.closure.closure import Closure

if TYPE_CHECKING:
    from collections.abc import Iterable

VERSION = 1
LIMIT = 16  # results under one key

Kind = Literal["artifact", "unit", "step", "kernel"]
REQUEST = "request"  # in a ``meta``: what the artifact was built for
KINDS: tuple[Kind, ...] = ("artifact", "unit", "step", "kernel")


class Damaged(Exception):
    """These bytes are not what was written."""


class Result(msgspec.Struct, frozen=True):
    """One outcome of a key, good as long as its closure holds.

    ``file`` is the content's digest, ``name`` the artifact's file name ('' for an object), ``size``
    in bytes, ``created`` in seconds since the epoch; ``meta`` is the builder's (commands,
    warnings), plain values only.
    """

    file: str
    name: str
    size: int
    closure: Closure
    created: float
    meta: dict[str, Any]


class _Head(msgspec.Struct):
    version: int


class _Manifest(msgspec.Struct):
    version: int
    kind: Kind
    key: str
    results: list[Result]


_encode = msgspec.msgpack.Encoder().encode
_head = msgspec.msgpack.Decoder(_Head).decode
_decode = msgspec.msgpack.Decoder(_Manifest).decode


def public(meta: dict[str, Any]) -> dict[str, Any]:
    """What all users of the machine may read of a ``meta``."""
    return {name: value for name, value in meta.items() if name != REQUEST}


def encode(kind: Kind, key: str, results: Iterable[Result]) -> bytes:
    """A manifest of the first 16 results.
    Raises TypeError for a ``meta`` that holds more than plain values."""
    payload = _encode(_Manifest(VERSION, kind, key, list(results)[:LIMIT]))
    return hashlib.sha256(payload).digest() + payload


def decode(kind: Kind, key: str, data: bytes) -> list[Result]:
    """The results in a manifest; none for a version that is not ours. Raises Damaged."""
    payload = memoryview(data)[32:]
    if hashlib.sha256(payload).digest() != data[:32]:
        raise Damaged("its digest does not match")
    try:
        if _head(payload).version != VERSION:
            return []
        manifest = _decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Damaged(str(error)) from error
    if (manifest.kind, manifest.key) != (kind, key):
        raise Damaged(f"it belongs to {manifest.kind} {manifest.key}")
    return manifest.results

"""Signatures: Ed25519, by the package ``cryptography``.

An operator's private key (setting ``bundle_key``) signs the index of a bundle, and results in a
remote store. Where public keys are configured (``bundle_trust``), nothing else is unpacked, loaded
or taken from a remote store.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
from typing import Any

from warmcc.errors import BundleError, ConfigError

_PREFIX = "ed25519:"
# What is signed: a signature of something else is none of a bundle
BUNDLE, RESULT = b"warmcc bundle\0", b"warmcc remote result\0"
SIZE = 64


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise BundleError(
            "signatures need the package cryptography: pip install 'warmcc[signing]'"
        ) from None
    return ed25519


def make_key(path: str) -> str:
    """Write a new private key into a new file for its owner alone; returns the public key.
    Raises BundleError."""
    key = _ed25519().Ed25519PrivateKey.generate()
    from cryptography.hazmat.primitives import serialization as to

    data = key.private_bytes(to.Encoding.PEM, to.PrivateFormat.PKCS8, to.NoEncryption())
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(number, "wb") as file:
            file.write(data)
    except FileExistsError:
        raise BundleError(f"{path} exists already; name a new file, or remove it") from None
    except OSError as error:
        raise BundleError(f"{path} cannot be written: {error.strerror}") from None
    return _text(key.public_key())


def _text(public: Any) -> str:
    return _PREFIX + base64.b64encode(public.public_bytes_raw()).decode()


class Signer:
    """The private key in a file. Raises BundleError, ConfigError."""

    def __init__(self, path: str) -> None:
        ed25519 = _ed25519()
        from cryptography.hazmat.primitives import serialization as to

        try:
            with open(path, "rb") as file:
                if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                    raise ConfigError(
                        f"bundle_key: {path} is open to others; run: chmod 600 {path}"
                    )
                data = file.read(1 << 16)
            key: Any = to.load_pem_private_key(data, None)
        except OSError as error:
            raise ConfigError(f"bundle_key: {path} cannot be read: {error.strerror}") from None
        except (ValueError, TypeError):
            raise ConfigError(f"bundle_key: {path} is no private key without a password") from None
        if not isinstance(key, ed25519.Ed25519PrivateKey):
            raise ConfigError(f"bundle_key: {path} is no Ed25519 key; make one: warmcc keygen FILE")
        self._key = key
        self.public = _text(key.public_key())

    def sign(self, data: bytes, context: bytes = BUNDLE) -> bytes:
        return bytes(self._key.sign(context + data))


def check(
    data: bytes, signature: bytes | None, trusted: list[str], what: str, context: bytes = BUNDLE
) -> str:
    """The trusted key that data is signed with. Raises BundleError, ConfigError."""
    keys = [_public(text) for text in trusted]
    if signature is None:
        raise BundleError(
            f"{what} is not signed, and bundle_trust takes only what is signed with "
            f"{' or '.join(trusted)}"
        )
    from cryptography.exceptions import InvalidSignature

    for text, key in zip(trusted, keys, strict=True):
        try:
            key.verify(signature, context + data)
        except InvalidSignature:
            continue
        return text
    raise BundleError(
        f"{what} was changed, or is not signed with a key of bundle_trust ({', '.join(trusted)})"
    )


def check_keys(trusted: list[str]) -> None:
    """Raises ConfigError for a text that is no public key, BundleError without the package."""
    for text in trusted:
        _public(text)


def _public(text: str) -> Any:
    ed25519 = _ed25519()
    try:
        if not text.startswith(_PREFIX):
            raise ValueError
        raw = base64.b64decode(text[len(_PREFIX) :], validate=True)
        return ed25519.Ed25519PublicKey.from_public_bytes(raw)
    except (ValueError, binascii.Error):
        raise ConfigError(
            f"bundle_trust: {text!r} is no public key; `warmcc keygen` prints one: {_PREFIX}…"
        ) from None

"""What a remote store has may be damaged, or lie: then it is not taken."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.closures import Project
from tests.support.exchanging import CONTENT, Machine
from warmcc import signing
from warmcc.daemon.remote import offers
from warmcc.daemon.remote.offers import Offer
from warmcc.daemon.remote.places import Trouble


def flip(data: bytes) -> bytes:
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "flipped": flip,
    "first bit": lambda data: bytes([data[0] ^ 128]) + data[1:],
    "last bit": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "truncated": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "other": lambda data: zlib.compress(b"something else"),
    "noise": lambda data: os.urandom(len(data)),
    "bomb": lambda data: zlib.compress(bytes(100 << 20), 1),
}


@pytest.mark.parametrize("folder", ["results", "headers", "files"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_damaged_is_not_taken(
    folder: str, damage: str, giver: Machine, taker: Machine
) -> None:
    for path in taker.files(folder):
        path.write_bytes(DAMAGE[damage](path.read_bytes()))
    if folder == "results" or damage != "last bit":  # zlib's own sum is not needed
        with pytest.raises(Trouble) as caught:
            taker.take()
        assert caught.value.reason == "damaged"
        assert taker.store.usage()["artifacts"]["count"] == 0
    taker.build()
    taker.exchange._there.clear()
    assert taker.give(), "the next result takes its place"
    assert Machine(taker.project, taker.store.root.parent / "third").take() == CONTENT


@pytest.mark.parametrize("folder", ["headers", "files"])
def test_what_is_missing_is_not_taken(folder: str, giver: Machine, taker: Machine) -> None:
    for path in taker.files(folder):
        path.unlink()
    with pytest.raises(Trouble, match="is missing"):
        taker.take()


def relabelled(giver: Machine, **changes: Any) -> None:
    """Let the remote store have a result with other fields, in a manifest that is in order."""
    (path,) = giver.files("results")
    (offer,) = offers.unpacked(path.read_bytes())
    key = changes.pop("key", path.name)
    result = offers.read(offer, path.name, "ext", [])
    meta = {**result.meta, **changes.pop("meta", {})}
    lie = msgspec.structs.replace(result, **{"meta": meta, **changes})
    path.write_bytes(offers.packed([offers.made(key, lie, None)]))


@pytest.mark.parametrize(
    "lie",
    [
        {"key": "ab" * 32},
        {"name": "other.so"},
        {"name": ""},
        {"file": "ab" * 32},
        {"file": "../../results"},
        {"size": 1},
        {"size": -1},
        {"size": 1 << 40},
        {"meta": {"sources": {"../main.cpp": ""}}},
        {"meta": {"sources": {"/tmp/main.cpp": ""}}},
        {"meta": {"commands": "g++"}},
        {"meta": {"surprise": 1}},
    ],
    ids=str,
)
def test_manifests_that_lie(lie: dict[str, Any], giver: Machine, taker: Machine) -> None:
    relabelled(giver, **lie)
    with pytest.raises(Trouble) as caught:
        taker.take()
    assert caught.value.reason == "damaged"
    assert taker.store.usage()["results"]["count"] == 0


def test_a_result_that_claims_not_to_depend_on_its_source(giver: Machine, taker: Machine) -> None:
    (path,) = giver.files("results")
    (offer,) = offers.unpacked(path.read_bytes())
    closure = offers.read(offer, path.name, "ext", []).closure
    relabelled(giver, closure=msgspec.structs.replace(closure, files={}))
    with pytest.raises(Trouble, match="does not depend on its sources"):
        taker.take()


def test_a_good_offer_behind_a_damaged_one_is_taken(giver: Machine, taker: Machine) -> None:
    (path,) = giver.files("results")
    (offer,) = offers.unpacked(path.read_bytes())
    damaged = [Offer(b""), Offer(flip(offer.manifest)), offer]
    path.write_bytes(offers.packed(damaged))
    assert taker.take() == CONTENT


# ---------------------------------------------------------------------- signatures


@pytest.fixture
def keys(tmp_path: Path) -> list[tuple[signing.Signer, str]]:
    pytest.importorskip("cryptography", reason="cryptography is not installed")
    paths = [str(tmp_path / name) for name in ("a.pem", "b.pem")]
    return [(signing.Signer(path), public) for path in paths for public in [signing.make_key(path)]]


def test_only_what_is_signed_with_a_trusted_key_is_taken(
    keys: list[tuple[signing.Signer, str]], project: Project, tmp_path: Path
) -> None:
    (signer, public), (_, other) = keys
    writer = Machine(project, tmp_path / "one", signer=signer)
    writer.build()
    assert writer.give()
    assert Machine(project, tmp_path / "two", trusted=[other, public]).take() == CONTENT
    assert Machine(project, tmp_path / "three").take() == CONTENT, "who trusts all takes it, too"
    with pytest.raises(Trouble) as caught:
        Machine(project, tmp_path / "four", trusted=[other]).take()
    assert caught.value.reason == "not signed"
    relabelled(writer)
    with pytest.raises(Trouble, match="is not signed, and bundle_trust") as caught:
        Machine(project, tmp_path / "five", trusted=[public]).take()
    assert caught.value.reason == "not signed"


def test_a_signature_is_of_one_result(
    keys: list[tuple[signing.Signer, str]], project: Project, tmp_path: Path
) -> None:
    """One of something else, or of another result, does not do."""
    ((signer, public), _) = keys
    writer = Machine(project, tmp_path / "one", signer=signer)
    writer.build()
    assert writer.give()
    (path,) = writer.files("results")
    (offer,) = offers.unpacked(path.read_bytes())
    result = offers.read(offer, path.name, "ext", [])
    forged = offers.made(path.name, msgspec.structs.replace(result, file="ab" * 32), None)
    for signature in (offer.signature, signer.sign(forged.manifest), b"", b"x" * 64):
        path.write_bytes(offers.packed([Offer(forged.manifest, signature)]))
        with pytest.raises(Trouble) as caught:
            Machine(project, tmp_path / "two", trusted=[public]).take()
        assert caught.value.reason == "not signed"

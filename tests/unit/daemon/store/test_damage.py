"""Damage in the store: what is not what was published is never served, and goes into quarantine."""

from __future__ import annotations

import os
import random

import msgspec
import pytest

from tests.support.shelf import Bench, key, usage_is_true
from warmcc import digest
from warmcc.daemon.closure.closure import Closure, Closures
from warmcc.daemon.closure.header_watch import HeaderWatch
from warmcc.daemon.closure.marker import Marker
from warmcc.daemon.store import tree


@pytest.mark.slow
def test_a_thousand_flipped_bits_none_served(bench: Bench) -> None:
    rng = random.Random(2)
    expected = {}
    for name in ("one", "two", "three"):
        closure = Closure(
            files=bench.depend(name, name).files, headers=[bench.header_set("include-" + name)]
        )
        for unit in (False, True):
            content = rng.randbytes(300)
            bench.publish(name, content, closure, unit=unit)
            expected[name, unit] = content
    pristine = {path: path.read_bytes() for path in bench.files()}
    assert len(pristine) == 15
    for _ in range(1000):
        path = rng.choice(list(pristine))
        data = bytearray(pristine[path])
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        bench.watch = HeaderWatch(bench.store.get_headers, watching=False)  # none in memory
        bench.closures = Closures(bench.store, bench.watch)
        before = bench.store.quarantined
        found = {which: bench.find(which[0], unit=which[1]) for which in expected}
        missing = [which for which in expected if found[which] is None]
        assert all(found[which] == expected[which] for which in expected if which not in missing)
        assert len(missing) == (2 if path.parts[-3] == "headers" else 1)
        assert bench.store.quarantined == before + 1
        assert not any(bench.find(which[0], unit=which[1]) for which in missing)
        for path, whole in pristine.items():
            if not path.exists() or path.read_bytes() != whole:
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(whole)
    bench.again()
    assert all(bench.find(name, unit=unit) == content for (name, unit), content in expected.items())


@pytest.mark.parametrize(
    "damage", ["empty", "short", "garbage", "digest of garbage", "another key's"]
)
def test_damaged_manifests_are_quarantined(bench: Bench, damage: str) -> None:
    bench.publish("toy")
    bench.publish("other")
    path = bench.manifest("toy")
    garbage = b"\xc1 nothing that msgpack knows"
    path.write_bytes(
        {
            "empty": b"",
            "short": path.read_bytes()[:-1],
            "garbage": garbage * 3,
            "digest of garbage": bytes.fromhex(digest.of_bytes(garbage)) + garbage,
            "another key's": bench.manifest("other").read_bytes(),
        }[damage]
    )
    assert bench.find("toy") is None
    assert not path.exists()
    assert bench.store.quarantined == 1
    assert len(list((bench.store.root / "quarantine").iterdir())) == 1
    assert bench.find("other") == b"other"
    bench.publish("toy")
    assert bench.find("toy") == b"toy"


def test_a_manifest_cut_at_each_byte(bench: Bench) -> None:
    bench.publish("toy")
    whole = bench.manifest("toy").read_bytes()
    for length in range(len(whole)):
        bench.manifest("toy").write_bytes(whole[:length])
        assert bench.find("toy") is None, length
        assert not bench.manifest("toy").exists()
    bench.manifest("toy").write_bytes(whole)
    assert bench.find("toy") == b"toy"


def test_a_manifest_of_another_version_is_empty_not_damaged(bench: Bench) -> None:
    bench.publish("toy")
    payload = msgspec.msgpack.encode({"version": 2, "results": "of another shape"})
    bench.manifest("toy").write_bytes(bytes.fromhex(digest.of_bytes(payload)) + payload)
    assert bench.find("toy") is None
    assert bench.store.quarantined == 0
    assert bench.store.verify()["damaged"] == 0
    bench.publish("toy")
    assert bench.find("toy") == b"toy"


@pytest.mark.parametrize("damage", ["deleted", "another size", "a link", "a folder", "next result"])
def test_a_damaged_file_is_dropped_from_its_results(bench: Bench, damage: str) -> None:
    _, path = bench.publish("toy", b"content")
    if damage == "next result":  # an older one whose closure holds is served
        _, path = bench.publish("toy", b"newer", bench.depend("source", "x"))
        path.write_bytes(b"n3wer")
        assert bench.find("toy") == b"content"
        assert len(bench.store.results("artifact", key("toy"))) == 1
        return
    path.unlink()
    if damage == "another size":
        path.write_bytes(b"content and more")
    elif damage == "a link":
        (bench.folder / "elsewhere").write_bytes(b"content")
        path.symlink_to(bench.folder / "elsewhere")
    elif damage == "a folder":
        path.mkdir()
    assert bench.find("toy") is None
    assert bench.store.results("artifact", key("toy")) == []
    assert bench.store.quarantined == (damage != "deleted")
    _, path = bench.publish("toy", b"content")
    assert path.is_file() and not path.is_symlink()
    assert bench.find("toy") == b"content"


@pytest.mark.parametrize("known", [False, True])
def test_a_file_that_was_read_is_read_again_when_it_was_written(
    bench: Bench, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, path = bench.publish("toy", b"content")
    read: list[str] = []
    of_file = digest.of_file
    monkeypatch.setattr(digest, "of_file", lambda path: [read.append(str(path)), of_file(path)][1])
    if not known:  # as if the filesystem's clock had not passed its dates
        monkeypatch.setattr(tree.Marker, "take", lambda *_: Marker(path.stat().st_ctime_ns))
    assert [bench.find("toy") for _ in range(3)] == [b"content"] * 3
    assert read.count(str(path)) == (1 if known else 3)
    times = path.stat()
    path.write_bytes(b"damaged")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert bench.find("toy") is None


def test_a_file_that_is_written_right_after_it_was_read_is_read_again(bench: Bench) -> None:
    for _ in range(100):
        _, path = bench.publish("toy", b"content")
        assert bench.find("toy") == b"content"
        times = path.stat()
        path.write_bytes(b"damaged")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert bench.find("toy") is None


def test_a_file_that_was_looked_at_again_is_found_without_reading_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, path = bench.publish("toy", b"content")
    bench.store.look_again(result)
    monkeypatch.setattr(digest, "of_file", lambda _: "read again")
    assert bench.find("toy") == b"content"
    path.write_bytes(b"other")
    assert bench.find("toy") is None


def test_verify(bench: Bench) -> None:
    good = Closure(headers=[bench.header_set("include")])
    bad = Closure(headers=[bench.header_set("include-2")])
    for name in ("one", "two", "three", "four"):
        bench.publish(name, closure=bad if name == "four" else good)
    whole = {"checked": 10, "ok": 10, "damaged": 0, "removed": 0}
    assert bench.store.verify() == whole
    header_set = bench.store.root / "headers" / bad.headers[0][:2] / bad.headers[0]
    os.rename(header_set, bench.folder / "set")
    header_set.symlink_to(bench.folder / "set")  # the right content, and not a file of the store
    bench.manifest("two").write_bytes(b"damaged")
    path = bench.store.results("artifact", key("three"))[0]
    (bench.store.root / "artifacts" / path.file[:2] / path.file / "three.so").write_bytes(b"THREE")
    (bench.store.root / "objects" / "stray").write_bytes(b"what is this")
    used = bench.manifest("one").stat().st_mtime_ns
    # one file each of: header set, manifest, artifact, stray; the results of three and four miss a
    # file
    assert bench.store.verify() == {"checked": 11, "ok": 7, "damaged": 4, "removed": 2}
    assert bench.store.verify() == {"checked": 7, "ok": 7, "damaged": 0, "removed": 0}
    assert bench.manifest("one").stat().st_mtime_ns == used
    assert [bench.find(name) for name in ("one", "two", "three", "four")] == [
        b"one",
        None,
        None,
        None,
    ]
    assert usage_is_true(bench.store)

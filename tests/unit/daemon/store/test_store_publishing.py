"""What the store publishes and keeps, rule by rule: files, header sets, and room for them."""

from __future__ import annotations

import errno
import resource
import time
from pathlib import Path

import pytest

from tests.support.shelf import GIB, Bench, key, usage_is_true
from warmcc import digest
from warmcc.daemon.closure.closure import Closure
from warmcc.daemon.store import Store


def staged(bench: Bench) -> list[Path]:
    return list((bench.store.root / "staging").iterdir())


def quarantined(bench: Bench) -> list[str]:
    found = (path.name for path in (bench.store.root / "quarantine").iterdir())
    return sorted(name.rpartition("-")[0] for name in found)


def results(bench: Bench, name: str = "toy", *, unit: bool = False) -> list[str]:
    """The files of the results that are known under a key."""
    found = bench.store.results("unit" if unit else "artifact", key(name))
    return [result.file for result in found]


def test_what_is_published_has_its_mode_its_time_and_its_meta(bench: Bench) -> None:
    before = time.time()
    result, path = bench.publish("toy", b"object", unit=True, warnings=["w"])
    assert path.stat().st_mode & 0o7777 == 0o644
    assert before <= result.created <= time.time()
    assert (result.name, result.size, result.meta) == (
        "",
        6,
        {"commands": ["toy"], "warnings": ["w"]},
    )
    (entry,) = bench.store.entries()
    assert (entry["kind"], entry["key"], entry["created"]) == ("unit", key("toy"), result.created)
    library, path = bench.publish("toy", b"library")
    assert path.stat().st_mode & 0o7777 == 0o755
    assert library.name == "toy.so"


def test_a_store_for_all_users_can_be_read_by_them(tmp_path: Path) -> None:
    for readable, mode in ((True, 0o755), (False, 0o700)):
        folder = tmp_path / f"{readable}"
        store = Store(folder, GIB, readable=readable)
        (tmp_path / "made").write_bytes(b"made")
        _, path = store.publish("artifact", key("toy"), tmp_path / "made", "toy.so", Closure(), {})
        assert {place.stat().st_mode & 0o777 for place in path.parents[:3]} == {mode}
        assert store.staging().stat().st_mode & 0o777 == 0o700


def test_a_store_is_private_unless_it_is_said(tmp_path: Path) -> None:
    Store(tmp_path / "store", GIB)
    assert (tmp_path / "store/objects").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(("wrong", "name"), [("x", "toy.so"), (key("toy"), "a/b")])
def test_a_wrong_key_or_name_is_refused_before_anything_is_copied(
    wrong: str, name: str, bench: Bench
) -> None:
    with pytest.raises(ValueError, match=r"a key|file name"):
        bench.store.publish("artifact", wrong, bench.folder / "nothing", name, Closure(), {})


def test_a_result_with_an_equal_closure_is_replaced_and_others_stay(bench: Bench) -> None:
    one, other = bench.depend("one", "1"), bench.depend("other", "2")
    bench.publish("toy", b"old", one)
    bench.publish("toy", b"second", other)
    bench.publish("toy", b"new", one)
    assert results(bench) == [key("new"), key("second")]


def test_a_file_that_another_result_has_stays_when_its_manifest_cannot_be_written(
    bench: Bench,
) -> None:
    """One that is new goes again."""
    bench.publish("one", b"the same", unit=True)
    usage = bench.store.usage()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for content, there in ((b"the same", True), (b"another", False)):
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, limits[1]))
        try:
            with pytest.raises(OSError, match="File too large"):
                bench.publish("two", content, unit=True, text="x" * 6000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        name = digest.of_bytes(content)
        assert (bench.store.root / "objects" / name[:2] / name).exists() is there
        assert staged(bench) == []
    assert bench.find("one", unit=True) == b"the same"
    assert bench.store.usage() == usage


def test_a_damaged_file_in_the_way_goes_to_quarantine(bench: Bench) -> None:
    result, path = bench.publish("toy", b"content")
    path.write_bytes(b"damaged")
    bench.publish("other", b"content")  # under another name
    assert quarantined(bench) == []
    bench.publish("toy", b"content", bench.depend("source", "x"))
    assert quarantined(bench) == [f"artifacts-{result.file[:2]}-{result.file}-toy.so"]
    assert path.read_bytes() == b"content"
    assert results(bench) == [result.file] * 2
    assert usage_is_true(bench.store)


def test_what_was_published_a_moment_ago_is_in_use(bench: Bench) -> None:
    """Its file and its header sets, also where a file was there already."""
    Bench(bench.folder).publish("old", b"content", unit=True)
    bench.store = Store(bench.store.root, GIB, grace=60.0)
    closure = Closure(headers=[bench.header_set("a"), bench.header_set("b")])
    bench.store = Store(bench.store.root, GIB, grace=60.0)
    bench.publish("toy", b"content", closure, unit=True)
    for folder in ("results", "headers"):
        assert bench.store.clear()["files"] == 0, folder
    assert len(results(bench, unit=True)) == 1
    assert all(bench.store.get_headers(name) for name in closure.headers)
    bench.manifest("toy", unit=True).unlink()
    assert bench.store.clear()["files"] == 0


def test_what_is_not_in_use_is_cleared_whatever_the_limit(bench: Bench) -> None:
    bench.publish("toy")
    assert bench.store.clear()["results"] == 1
    assert bench.files() == []


def test_a_header_set_that_was_kept_a_moment_ago_is_in_use(bench: Bench) -> None:
    bench.store = Store(bench.store.root, GIB, grace=60.0)
    name = bench.header_set("a")
    assert bench.store.clear()["files"] == 0
    bench.again()
    assert bench.store.clear()["files"] == 1
    assert bench.store.get_headers(name) is None


def test_the_time_of_grace_is_ten_minutes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(bench.store.root, GIB)
    store.put_headers(b"payload")
    now = time.monotonic()
    for later, files in ((590.0, 0), (610.0, 1)):
        monkeypatch.setattr(time, "monotonic", lambda later=later: now + later)
        assert store.clear()["files"] == files


# ---------------------------------------------------------------------- header sets


def test_a_damaged_header_set_is_nothing_and_can_be_kept_again(bench: Bench) -> None:
    name = bench.store.put_headers(b"payload")
    path = bench.store.root / "headers" / name[:2] / name
    for get in (True, False):
        path.write_bytes(b"damaged")
        if get:
            assert bench.store.get_headers(name) is None
            assert not path.exists()
        assert bench.store.put_headers(b"payload") == name
        assert bench.store.get_headers(name) == b"payload"
    assert quarantined(bench) == [f"headers-{name[:2]}-{name}"] * 2
    assert usage_is_true(bench.store)


def test_a_busy_machine_is_no_reason_to_set_a_header_set_aside(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = bench.store.put_headers(b"payload")

    def busy(*_given: object, **_named: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", busy)  # when it is looked at, one may be opened again
        assert bench.store.get_headers(name) is None
    assert bench.store.get_headers(name) == b"payload"
    assert bench.store.quarantined == 0


def test_a_header_set_is_written_once(bench: Bench) -> None:
    name = bench.store.put_headers(b"payload")
    path = bench.store.root / "headers" / name[:2] / name
    before = path.stat().st_ino
    assert bench.store.put_headers(b"payload") == name
    assert path.stat().st_ino == before
    assert path.stat().st_mode & 0o777 == 0o644


# ---------------------------------------------------------------------- the whole


def test_another_limit_counts_from_the_next_prune_on(bench: Bench) -> None:
    for name in "abcd":
        bench.publish(name, name.encode() * 1000)
    total = bench.store.usage()["bytes"]
    assert bench.store.keep_to_limit()
    bench.store.resize(total)
    assert bench.store.keep_to_limit()
    assert bench.store.usage()["bytes"] == total
    bench.store.resize(total - 1)
    assert bench.store.keep_to_limit()
    assert bench.store.usage()["bytes"] == total // 4 * 3
    bench.store.resize(total // 4)
    assert bench.store.prune()["bytes"] == total // 4
    assert bench.store.prune(0) == {"bytes": 0, "freed": total // 4, "results": 1, "files": 1}


def test_a_store_over_its_limit_is_pruned_to_nine_tenths(bench: Bench) -> None:
    for number in range(20):
        bench.publish(f"{number}", bytes([number]) * 1000, unit=True)
    total = bench.store.usage()["bytes"]
    bench.store.resize(total - 1)
    assert bench.store.keep_to_limit()
    kept = bench.store.usage()["objects"]["count"]
    largest = -(-total // 20)
    assert (kept - 1) * largest <= (total - 1) * 9 // 10 < (kept + 1) * largest


def test_header_sets_of_several_that_need_them_stay(bench: Bench) -> None:
    names = [bench.store.put_headers(bytes([number])) for number in range(3)]
    bench.store.keep_headers(lambda: names[:1])
    bench.store.keep_headers(lambda: names[1:2])
    assert bench.store.clear()["files"] == 1
    assert [bench.store.get_headers(name) for name in names] == [b"\0", b"\1", None]


def test_what_lost_trust_is_withdrawn(bench: Bench) -> None:
    bench.publish("good", makers=["a"])
    bench.publish("bad", makers=["a", "b"])
    assert bench.store.withdraw(frozenset({"b", "c"})) == 1
    assert (bench.find("good"), bench.find("bad")) == (b"good", None)


def test_folders_of_builds_go_one_by_one(bench: Bench) -> None:
    one, other = bench.store.staging(), bench.store.staging()
    bench.store.discard(one)
    assert staged(bench) == [other]
    with pytest.raises(ValueError, match="not a staging folder of this store"):
        bench.store.discard(bench.store.root)

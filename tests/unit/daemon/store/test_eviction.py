"""Eviction: the longest unused goes first, and nothing goes that is in use."""

from __future__ import annotations

import mmap
import subprocess
import sys
from pathlib import Path

from tests.support.shelf import GIB, Bench, key, usage_is_true
from warmcc.daemon.closure.closure import Closure
from warmcc.daemon.store import Store


def test_the_longest_unused_goes_first(bench: Bench) -> None:
    for age, name in enumerate("abcdef"):
        bench.publish(name, name.encode() * 1000)
        bench.used(name, 1000 - age)
    assert bench.find("a") is not None  # used now
    size = bench.store.usage()["bytes"]
    assert [entry["name"] for entry in bench.store.entries()] == [f"{name}.so" for name in "afedcb"]
    pruned = bench.store.prune(size // 2)
    assert pruned["results"] == pruned["files"] == 3
    assert pruned["bytes"] == bench.store.usage()["bytes"] <= size // 2
    assert pruned["freed"] == size - pruned["bytes"]
    assert [name for name in "abcdef" if bench.find(name)] == ["a", "e", "f"]
    assert usage_is_true(bench.store)
    assert bench.store.prune() == {"bytes": pruned["bytes"], "freed": 0, "results": 0, "files": 0}


def test_the_size_limit_is_the_default(tmp_path: Path) -> None:
    store = Store(tmp_path / "store", 5000, grace=0.0)
    for number in range(10):
        (tmp_path / "made").write_bytes(bytes([number]) * 1000)
        store.publish("unit", key(f"{number}"), tmp_path / "made", "", Closure(), {})
    assert store.keep_to_limit()
    assert 3000 <= store.usage()["bytes"] <= 4500
    assert store.usage()["objects"]["count"] >= 3
    assert store.keep_to_limit()
    in_use = Store(tmp_path / "store", 3000, grace=60.0)
    for number in (20, 21, 22):
        (tmp_path / "made").write_bytes(bytes([number]) * 1000)
        in_use.publish("unit", key(f"{number}"), tmp_path / "made", "", Closure(), {})
    assert not in_use.keep_to_limit()
    assert in_use.usage()["objects"]["count"] == 3


def test_shared_files_stay_as_long_as_one_result_needs_them(bench: Bench) -> None:
    closure = Closure(headers=[bench.header_set("include")])
    bench.publish("old", b"content", closure, unit=True)
    bench.publish("new", b"content", closure, unit=True)
    bench.used("old", 100, unit=True)
    size = bench.store.usage()["bytes"]
    assert bench.store.prune(size - 1) | {"bytes": 0, "freed": 0} == {
        "bytes": 0,
        "freed": 0,
        "results": 1,
        "files": 0,
    }
    assert bench.find("new", unit=True) == b"content"
    assert bench.store.clear()["files"] == 2
    assert bench.files() == []
    assert bench.store.usage()["bytes"] == 0


def test_header_sets_that_something_beside_the_store_needs_stay(bench: Bench) -> None:
    (bench.folder / "other").mkdir()
    kept, gone = bench.header_set("include"), bench.header_set("other")
    bench.store.keep_headers(lambda: [kept])
    assert bench.store.clear()["files"] == 1
    assert bench.store.get_headers(kept) is not None
    assert bench.store.get_headers(gone) is None


def test_files_of_a_crash_go_with_the_next_prune(bench: Bench) -> None:
    bench.publish("toy")
    bench.manifest("toy").unlink()
    assert bench.store.prune()["files"] == 1
    assert bench.files() == []


def test_pinned_files_stay(bench: Bench) -> None:
    bench.publish("found")
    bench.publish("old")
    bench.again()
    bench.store = Store(bench.store.root, GIB, grace=600)
    assert bench.find("found")
    bench.publish("new", closure=Closure(headers=[bench.header_set("include")]))
    assert bench.store.clear()["results"] == 1
    assert [name for name in ("found", "old", "new") if bench.find(name)] == ["found", "new"]


def test_of_one_key_only_the_results_in_use_stay(bench: Bench) -> None:
    bench.publish("toy", b"A", bench.depend("source", "A"))
    bench.publish("toy", b"B", bench.depend("source", "B"))
    bench.store = Store(bench.store.root, GIB, grace=600)
    assert bench.find("toy") == b"B"
    used = bench.manifest("toy").stat().st_mtime_ns
    assert bench.store.clear()["results"] == 1
    assert bench.manifest("toy").stat().st_mtime_ns == used
    bench.depend("source", "A")
    assert bench.find("toy") is None
    bench.depend("source", "B")
    assert bench.find("toy") == b"B"


def test_files_mapped_by_another_process_stay(bench: Bench) -> None:
    _, path = bench.publish("mapped", b"x" * 5000)
    bench.publish("idle")
    program = """if True:
        import mmap, sys
        with open(sys.argv[1], "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        print(flush=True)
        input()
    """
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert bench.store.clear()["results"] == 1
        assert path.exists()
        assert bench.find("mapped") == b"x" * 5000
        child.communicate(b"\n")
    assert bench.store.clear()["results"] == 1
    assert not path.parent.exists()


def test_a_store_behind_a_link_knows_what_is_mapped(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    bench = Bench(tmp_path / "link")
    _, path = bench.publish("toy", b"x" * 5000)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        assert bench.store.clear()["results"] == 0
    assert bench.store.clear()["results"] == 1


def test_quarantine_is_bounded(bench: Bench) -> None:
    for number in range(40):
        _, path = bench.publish(f"{number}")
        path.write_bytes(b"damaged")
        assert bench.find(f"{number}") is None
    quarantine = bench.store.root / "quarantine"
    assert len(list(quarantine.iterdir())) == 40
    bench.store.prune()
    assert len(list(quarantine.iterdir())) == 32
    bench.store.clear()
    assert list(quarantine.iterdir()) == []
    assert bench.store.quarantined == 40

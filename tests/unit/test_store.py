"""The store: what was published is found, by whoever comes later, and nothing else ever is."""

from __future__ import annotations

import mmap
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from warmcc import digest
from warmcc.daemon import headers
from warmcc.daemon.closure import Closure, Closures
from warmcc.daemon.headers import HeaderWatch
from warmcc.daemon.store import Kind, Result, Store
from warmcc.errors import DaemonError

GIB = 1 << 30


def key(text: str) -> str:
    return digest.of_bytes(text.encode())


class Bench:
    """A store, closures that it can check, and a folder for what is to be published."""

    def __init__(self, folder: Path, grace: float = 0.0) -> None:
        self.folder = folder
        self.store = Store(folder / "store", GIB, grace=grace)
        self.watch = HeaderWatch(self.store.get_headers, watching=False)
        self.closures = Closures(self.store, self.watch)

    def again(self) -> None:
        """The same folder after a restart of the daemon."""
        self.store = Store(self.folder / "store", GIB, grace=0.0)
        self.watch = HeaderWatch(self.store.get_headers, watching=False)
        self.closures = Closures(self.store, self.watch)

    def publish(
        self, name: str, content: bytes = b"", closure: Closure | None = None, *, unit: bool = False
    ) -> tuple[Result, Path]:
        made = self.folder / f"made-{threading.get_ident()}"
        made.write_bytes(content or name.encode())
        kind: Kind = "unit" if unit else "artifact"
        return self.store.publish(
            kind, key(name), made, "" if unit else f"{name}.so", closure or Closure(), {"commands": [name]}
        )

    def find(self, name: str, *, unit: bool = False) -> bytes | None:
        found = self.store.find("unit" if unit else "artifact", key(name), self.closures)
        return None if found is None else found[1].read_bytes()

    def depend(self, name: str, text: str) -> Closure:
        """A closure that holds while the file ``name`` contains ``text``; it does now."""
        path = self.folder / name
        path.write_text(text)
        return Closure(files={str(path): key(text)})

    def header_set(self, name: str) -> str:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "a.h").touch()
        state = (folder / "a.h").stat()
        entry = headers.Entry("a.h", state.st_size, state.st_mtime_ns)
        return self.store.put_headers(headers.encode([], {str(folder): [entry]}))

    def used(self, name: str, seconds_ago: float, *, unit: bool = False) -> None:
        path = self.manifest(name, unit=unit)
        os.utime(path, (time.time() - seconds_ago,) * 2)

    def manifest(self, name: str, *, unit: bool = False) -> Path:
        kind = "unit" if unit else "artifact"
        return self.store.root / "results" / kind / key(name)[:2] / key(name)

    def files(self) -> list[Path]:
        """All that is published."""
        return sorted(
            path
            for folder in ("results", "objects", "artifacts", "headers")
            for path in (self.store.root / folder).rglob("*")
            if path.is_file()
        )


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.watch.close()


def usage_is_true(store: Store) -> bool:
    """Whether the running totals are what counting anew gives."""
    before = store.usage()
    return before == Store(store.root, GIB).usage() | {"quarantined": before["quarantined"]}


# Publishing and finding


def test_published_is_found(bench: Bench) -> None:
    result, path = bench.publish("toy", b"machine code")
    content = digest.of_bytes(b"machine code")
    assert path == bench.store.root / "artifacts" / content[:2] / content / "toy.so"
    assert path.stat().st_mode & 0o7777 == 0o755
    assert (result.file, result.name, result.size) == (content, "toy.so", 12)
    assert result.meta == {"commands": ["toy"]}
    assert bench.store.find("artifact", key("toy"), bench.closures) == (result, path)
    assert bench.store.results("artifact", key("toy")) == [result]
    assert bench.find("another") is None
    assert list((bench.store.root / "staging").iterdir()) == []


def test_units_and_artifacts_are_apart(bench: Bench) -> None:
    """One key may be used for both."""
    _, unit = bench.publish("toy", b"object", unit=True)
    bench.publish("toy", b"library")
    content = digest.of_bytes(b"object")
    assert unit == bench.store.root / "objects" / content[:2] / content
    assert (bench.find("toy"), bench.find("toy", unit=True)) == (b"library", b"object")


def test_a_store_of_an_earlier_process_is_found(bench: Bench) -> None:
    bench.depend("dependency", "text")
    program = """if True:
        import sys
        from pathlib import Path
        from warmcc import digest
        from warmcc.daemon.closure import Closure
        from warmcc.daemon.store import Store
        folder = Path(sys.argv[1])
        store = Store(folder / "store", 1 << 30)
        (folder / "made").write_bytes(b"from before")
        closure = Closure(files={str(folder / "dependency"): digest.of_bytes(b"text")})
        store.publish("artifact", digest.of_bytes(b"toy"), folder / "made", "toy.so", closure, {"a": [1, None, "x"]})
        store.staging()
    """
    subprocess.run([sys.executable, "-c", program, str(bench.folder)], check=True)
    assert len(list((bench.store.root / "staging").iterdir())) == 1
    bench.again()
    assert bench.find("toy") == b"from before"
    assert bench.store.results("artifact", key("toy"))[0].meta == {"a": [1, None, "x"]}
    assert list((bench.store.root / "staging").iterdir()) == []  # its process is gone


def test_the_first_result_that_holds(bench: Bench) -> None:
    """A → B → A: both variants stay, and the one whose closure holds is the hit."""
    for text in ("A", "B"):
        bench.publish("toy", f"built from {text}".encode(), bench.depend("source", text))
    assert [result.size for result in bench.store.results("artifact", key("toy"))] == [12, 12]
    first = bench.store.results("artifact", key("toy"))[1]
    bench.depend("source", "A")
    assert bench.find("toy") == b"built from A"
    assert bench.store.results("artifact", key("toy"))[0] == first  # in front now, also after a restart
    bench.depend("source", "B")
    assert bench.find("toy") == b"built from B"
    bench.depend("source", "C")
    assert bench.find("toy") is None
    assert usage_is_true(bench.store)


def test_sixteen_results_at_most_and_equal_closures_once(bench: Bench) -> None:
    for number in range(20):
        bench.publish("toy", f"{number}".encode(), bench.depend("source", f"{number}"))
    known = bench.store.results("artifact", key("toy"))
    assert [result.file for result in known] == [key(f"{number}") for number in range(19, 3, -1)]
    bench.publish("toy", b"again", bench.depend("source", "10"))
    known = bench.store.results("artifact", key("toy"))
    assert len(known) == 16
    assert key("10") not in [result.file for result in known]
    assert bench.find("toy") == b"again"


def test_what_is_there_is_never_written_again(bench: Bench) -> None:
    _, path = bench.publish("one", b"content", unit=True)
    before = path.stat()
    _, again = bench.publish("two", b"content", unit=True)
    assert again == path
    assert (path.stat().st_ino, path.stat().st_mtime_ns, path.stat().st_nlink) == (before.st_ino, before.st_mtime_ns, 1)
    path.write_bytes(b"c0ntent")  # damaged: replaced, not mended in place
    damaged = path.stat().st_ino
    bench.publish("three", b"content", unit=True)
    assert path.stat().st_ino != damaged
    assert bench.store.quarantined == 1
    assert {bench.find(name, unit=True) for name in ("one", "two", "three")} == {b"content"}
    assert usage_is_true(bench.store)


def test_the_original_has_no_way_into_the_store(bench: Bench) -> None:
    """Its links and open descriptors are somebody else's (ccache links objects into its cache)."""
    made = bench.folder / "made"
    made.write_bytes(b"original")
    os.link(made, bench.folder / "ccache")
    with open(made, "r+b") as still_open:
        bench.store.publish("unit", key("toy"), made, "", Closure(), {})
        still_open.write(b"tampered")
    assert bench.find("toy", unit=True) == b"original"


@pytest.mark.parametrize("name", [".", "..", "a/b", "/etc/passwd", "nul\0"])
def test_names_are_plain(bench: Bench, name: str) -> None:
    made = bench.folder / "made"
    made.touch()
    with pytest.raises(ValueError, match="plain file name"):
        bench.store.publish("artifact", key("toy"), made, name, Closure(), {})
    assert bench.files() == []


@pytest.mark.parametrize("wrong", ["", "../../x", "A" * 64, "0" * 63, "0" * 64 + "\n"])
def test_keys_are_digests(bench: Bench, wrong: str) -> None:
    with pytest.raises(ValueError, match="neither a key nor a digest"):
        bench.store.results("unit", wrong)
    with pytest.raises(ValueError, match="neither a key nor a digest"):
        bench.store.get_headers(wrong)
    with pytest.raises(ValueError, match="kind"):
        bench.store.results("../x", key("toy"))  # type: ignore[arg-type]


def test_a_meta_that_is_not_plain_leaves_nothing(bench: Bench) -> None:
    made = bench.folder / "made"
    made.write_bytes(b"content")
    with pytest.raises(TypeError):
        bench.store.publish("unit", key("toy"), made, "", Closure(), {"what": object()})
    assert bench.files() == []
    assert list((bench.store.root / "staging").iterdir()) == []


def test_header_sets(bench: Bench) -> None:
    payload = headers.encode(["a"], {"/usr/include": [headers.Entry("a", 1, 2)]})
    name = bench.store.put_headers(payload)
    assert name == bench.store.put_headers(payload) == digest.of_bytes(payload)
    assert bench.store.get_headers(name) == payload
    assert bench.store.get_headers("0" * 64) is None
    assert bench.store.quarantined == 0
    assert bench.store.usage()["headers"] == {"count": 1, "bytes": len(payload)}


# Damage


def test_a_thousand_flipped_bits_none_served(bench: Bench) -> None:
    rng = random.Random(2)
    expected = {}
    for name in ("one", "two", "three"):
        closure = Closure(files=bench.depend(name, name).files, headers=[bench.header_set("include-" + name)])
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


@pytest.mark.parametrize("damage", ["empty", "short", "garbage", "digest of garbage", "another key's"])
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
    # one file each of: header set, manifest, artifact, stray; the results of three and four miss a file
    assert bench.store.verify() == {"checked": 11, "ok": 7, "damaged": 4, "removed": 2}
    assert bench.store.verify() == {"checked": 7, "ok": 7, "damaged": 0, "removed": 0}
    assert bench.manifest("one").stat().st_mtime_ns == used
    assert [bench.find(name) for name in ("one", "two", "three", "four")] == [b"one", None, None, None]
    assert usage_is_true(bench.store)


# Eviction


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
    assert store.prune()["bytes"] <= 5000
    assert store.usage()["objects"]["count"] >= 3


def test_shared_files_stay_as_long_as_one_result_needs_them(bench: Bench) -> None:
    closure = Closure(headers=[bench.header_set("include")])
    bench.publish("old", b"content", closure, unit=True)
    bench.publish("new", b"content", closure, unit=True)
    bench.used("old", 100, unit=True)
    size = bench.store.usage()["bytes"]
    assert bench.store.prune(size - 1) | {"bytes": 0, "freed": 0} == {"bytes": 0, "freed": 0, "results": 1, "files": 0}
    assert bench.find("new", unit=True) == b"content"
    assert bench.store.clear()["files"] == 2
    assert bench.files() == []
    assert bench.store.usage()["bytes"] == 0


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


# Staging, and disks that do not play along


def test_staging(bench: Bench) -> None:
    one, other = bench.store.staging(), bench.store.staging()
    assert one != other and one.is_dir() and one.stat().st_mode & 0o777 == 0o700
    (one / "deep/er").mkdir(parents=True)
    bench.again()  # this process is alive, so its folders stay
    assert one.exists()
    for wrong in (bench.store.root, bench.store.root / "objects", bench.folder, one / "deep"):
        with pytest.raises(ValueError, match="not a staging folder"):
            bench.store.discard(wrong)
    bench.store.discard(one)
    assert not one.exists() and other.exists()
    # a process id comes back, its start time does not
    os.rename(other, other.with_name(f"{os.getpid()}-1-abc"))
    (bench.store.root / "staging" / "stray").touch()
    bench.again()
    assert list((bench.store.root / "staging").iterdir()) == []


def test_a_store_that_was_removed_comes_back(bench: Bench) -> None:
    bench.publish("toy")
    shutil.rmtree(bench.store.root)
    assert bench.find("toy") is None
    assert bench.store.entries() == []
    bench.publish("toy")
    assert bench.find("toy") == b"toy"
    assert bench.store.root.stat().st_mode & 0o777 == 0o700
    assert bench.store.staging().is_dir()
    assert bench.store.verify() == {"checked": 2, "ok": 2, "damaged": 0, "removed": 0}


def test_a_root_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for root in (tmp_path / "file", tmp_path / "file/store", Path("/proc/store")):
        with pytest.raises(DaemonError, match=r"cannot be written|not a folder"):
            Store(root, GIB)
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(DaemonError, match="open to others"):
        Store(tmp_path / "open", GIB)


def as_plain_user(program: str) -> None:
    """Run ``program(folder)`` in a child without root's rights, in a folder of its own; it must not raise."""
    folder = Path("/tmp") / f"warmcc-store-{os.getpid()}-{time.monotonic_ns()}"
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            folder.mkdir(mode=0o700)
            globals()[program](folder)
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        for path in folder.rglob("*"):
            if path.is_dir():
                path.chmod(0o700)
        shutil.rmtree(folder)


def unwritable_root(folder: Path) -> None:
    root = folder / "store"
    Store(root, GIB)
    root.chmod(0o500)
    (root / "staging").chmod(0o500)
    with pytest.raises(DaemonError, match=r"cannot be written: Permission denied\nSet WARMCC_CACHE_DIR"):
        Store(root, GIB)
    (folder / "no").mkdir(mode=0o500)
    with pytest.raises(DaemonError, match="cannot be written"):
        Store(folder / "no/store", GIB)


def unwritable_folders(folder: Path) -> None:
    bench = Bench(folder)
    bench.publish("before")
    before = bench.files()
    for name in ("artifacts", "results/artifact", "staging"):
        (bench.store.root / name).chmod(0o500)
        with pytest.raises(PermissionError):
            bench.publish("toy")
        (bench.store.root / name).chmod(0o700)
        assert bench.files() == before
        assert list((bench.store.root / "staging").iterdir()) == []
    for path in bench.store.root.rglob("*"):  # a store that became read-only still serves
        path.chmod(0o500)
    assert bench.find("before") == b"before"
    assert usage_is_true_by_counting(bench)


def unreadable_file(folder: Path) -> None:
    bench = Bench(folder)
    _, path = bench.publish("toy")
    path.chmod(0)
    assert bench.find("toy") is None
    bench.publish("toy")
    bench.manifest("toy").chmod(0)
    assert bench.find("toy") is None
    assert bench.store.quarantined == 2


def file_too_large(folder: Path) -> None:
    import resource

    bench = Bench(folder)
    bench.publish("before")
    before = bench.files()
    usage = bench.store.usage()
    (folder / "made").write_bytes(b"x" * 100_000)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
    tree = bench.store.staging()
    with pytest.raises(OSError, match="File too large"):
        bench.store.publish("artifact", key("toy"), folder / "made", "toy.so", Closure(), {})
    with pytest.raises(OSError, match="File too large"):
        bench.store.put_headers(b"x" * 60_000)
    (folder / "made").write_bytes(b"y" * 1000)  # the file fits, its manifest does not
    with pytest.raises(OSError, match="File too large"):
        bench.store.publish("artifact", key("toy"), folder / "made", "toy.so", Closure(), {"text": "x" * 60_000})
    bench.store.discard(tree)
    assert bench.files() == before
    assert list((bench.store.root / "staging").iterdir()) == []
    assert bench.store.usage() == usage
    assert bench.find("before") == b"before"


def usage_is_true_by_counting(bench: Bench) -> bool:
    return int(bench.store.usage()["bytes"]) == sum(path.stat().st_size for path in bench.files())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of fork beside threads: the child starts none
@pytest.mark.parametrize("program", ["unwritable_root", "unwritable_folders", "unreadable_file", "file_too_large"])
def test_refusals_of_the_disk(program: str) -> None:
    as_plain_user(program)


FULL_DISK = """if True:
    import os, sys
    from pathlib import Path
    from warmcc import digest
    from warmcc.daemon.closure import Closure, Closures
    from warmcc.daemon.headers import HeaderWatch
    from warmcc.daemon.store import Store

    disk, made = Path(sys.argv[1]), Path(sys.argv[2])
    store = Store(disk / "store", 1 << 30, grace=0.0)
    closures = Closures(store, HeaderWatch(store.get_headers))
    names = [digest.of_bytes(b"%d" % number) for number in range(200)]
    tree = store.staging()
    (tree / "object").write_bytes(b"in the tree")
    published, failed = [], 0
    for number, name in enumerate(names):
        made.write_bytes(os.urandom(20_000))
        try:
            store.publish("unit", name, made, "", Closure(), {})
            published.append(name)
        except OSError as error:
            assert error.errno == 28, error
            failed += 1
    assert published and failed
    assert [name for name in names if store.find("unit", name, closures)] == published
    assert [path.name for path in (disk / "store/staging").iterdir()] == [tree.name]
    store.discard(tree)
    assert store.verify() == {"checked": 2 * len(published), "ok": 2 * len(published), "damaged": 0, "removed": 0}
    assert store.usage()["objects"]["count"] == len(published)
    assert store.clear()["bytes"] == 0
    store.publish("unit", names[0], made, "", Closure(), {})
"""


def test_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    command = 'mount -t tmpfs -o size=1m,mode=700 tmpfs "$1" || exit 77; shift; exec "$@"'
    try:
        done = subprocess.run(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", command, "sh", str(tmp_path / "disk"),
             sys.executable, "-c", FULL_DISK, str(tmp_path / "disk"), str(tmp_path / "made")],
            capture_output=True, text=True,
        )  # fmt: skip
    except FileNotFoundError:
        pytest.skip("no unshare here")
    if done.returncode == 77 or "unshare:" in done.stderr:
        pytest.skip(f"no filesystem of its own for a test here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr


# Many at once


def test_eight_threads(bench: Bench) -> None:
    """Publishing, finding, pruning and looking at the same few keys at once: what is found is always right."""
    bench.store = Store(bench.store.root, 20_000, grace=600.0)
    bench.watch = HeaderWatch(bench.store.get_headers)
    bench.closures = Closures(bench.store, bench.watch)
    contents = {f"{number}": random.Random(number).randbytes(2000) for number in range(12)}
    closures = {name: Closure(headers=[bench.header_set(f"include-{int(name) % 3}")]) for name in contents}
    errors: list[BaseException] = []
    hits = [0] * 8

    def work(thread: int) -> None:
        rng = random.Random(thread)
        try:
            for _ in range(60):
                name = rng.choice(list(contents))
                action = rng.randrange(10)
                if action < 4:
                    _, path = bench.publish(name, contents[name], closures[name], unit=rng.random() < 0.5)
                    assert path.read_bytes() == contents[name]
                elif action < 8:
                    found = bench.find(name, unit=rng.random() < 0.5)
                    assert found in (None, contents[name])
                    hits[thread] += found is not None
                elif action == 8:
                    bench.store.prune(rng.choice((0, 10_000)))
                else:
                    assert bench.store.entries() is not None
                    assert bench.store.verify()["damaged"] == 0
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sum(hits) > 20
    assert bench.store.quarantined == 0
    whole = bench.store.verify()
    assert (whole["damaged"], whole["removed"]) == (0, 0)
    assert usage_is_true(bench.store)
    assert list((bench.store.root / "staging").iterdir()) == []


def test_eight_threads_without_grace(bench: Bench) -> None:
    """Nothing is pinned, so files go at any moment: a miss, never an error and never something else."""
    errors: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            for turn in range(60):
                name = f"{turn % 4}"
                bench.publish(name, name.encode() * 500)
                bench.store.find("artifact", key(name), bench.closures)
                if thread < 2:
                    bench.store.clear()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert bench.store.verify()["damaged"] == bench.store.quarantined == 0
    assert usage_is_true(bench.store)

"""The store: what was published is found, by whoever comes later, and nothing else ever is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.shelf import Bench, key, usage_is_true
from warmcc import digest
from warmcc.daemon.closure import header_sets
from warmcc.daemon.closure.closure import Closure


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


def test_one_file_under_two_keys(bench: Bench) -> None:
    """The second key has another ``meta``; a file that is gone or damaged gets none."""
    result, path = bench.publish("toy", b"object", unit=True)
    bench.store.also("unit", key("again"), result, {"folder": "/p"})
    assert bench.find("again", unit=True) == bench.find("toy", unit=True) == b"object"
    (again,) = bench.store.results("unit", key("again"))
    assert (again.file, again.meta, again.closure) == (
        result.file,
        {"folder": "/p"},
        result.closure,
    )
    assert list(path.parent.iterdir()) == [path], "it is there once"
    assert bench.store.content(again) == b"object"
    usage_is_true(bench.store)
    path.chmod(0o644)
    path.write_bytes(b"0bject")
    assert bench.store.content(again) is None
    with pytest.raises(FileNotFoundError):
        bench.store.also("unit", key("third"), result, {})
    assert bench.store.results("unit", key("third")) == []


def test_a_store_of_an_earlier_process_is_found(bench: Bench) -> None:
    bench.depend("dependency", "text")
    program = """if True:
        import sys
        from pathlib import Path
        from warmcc import digest
        from warmcc.daemon.closure.closure import Closure
        from warmcc.daemon.store import Store
        folder = Path(sys.argv[1])
        store = Store(folder / "store", 1 << 30)
        (folder / "made").write_bytes(b"from before")
        closure = Closure(files={str(folder / "dependency"): digest.of_bytes(b"text")})
        meta = {"a": [1, None, "x"]}
        store.publish("artifact", digest.of_bytes(b"toy"), folder / "made", "toy.so", closure, meta)
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
    assert (
        bench.store.results("artifact", key("toy"))[0] == first
    )  # in front now, also after a restart
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
    assert (path.stat().st_ino, path.stat().st_mtime_ns, path.stat().st_nlink) == (
        before.st_ino,
        before.st_mtime_ns,
        1,
    )
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
    payload = header_sets.encode(["a"], {"/usr/include": [header_sets.Entry("a", 1, 2)]})
    name = bench.store.put_headers(payload)
    assert name == bench.store.put_headers(payload) == digest.of_bytes(payload)
    assert bench.store.get_headers(name) == payload
    assert bench.store.get_headers("0" * 64) is None
    assert bench.store.quarantined == 0
    assert bench.store.usage()["headers"] == {"count": 1, "bytes": len(payload)}


def test_what_is_published_is_on_the_disk_in_order(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file before its name, and its name before that of anything later: then a power cut takes
    the last ones first. Nothing waits for the disk for an object, which can be made again."""
    done: list[tuple[str, str]] = []

    def noted(name: str, place: Callable[..., str]) -> None:
        real = getattr(os, name)

        def call(*given: Any, **named: Any) -> Any:
            target = place(*given)
            result = real(*given, **named)
            done.append((name, os.path.relpath(target, bench.store.root)))
            return result

        monkeypatch.setattr(os, name, call)

    noted("fsync", lambda descriptor: os.readlink(f"/proc/self/fd/{descriptor}"))
    noted("rename", lambda source, target: target)
    noted("mkdir", lambda path, mode=0o777: path)
    _, path = bench.publish("toy")
    file, manifest = (
        str(path.relative_to(bench.store.root)),
        str(bench.manifest("toy").relative_to(bench.store.root)),
    )
    for target in (file, manifest):
        place = done.index(("rename", target))
        assert done[place - 1][0] in ("fsync", "mkdir") and done[place + 1] == (
            "fsync",
            os.path.dirname(target),
        )
    for place, (what, folder) in enumerate(done):
        assert what != "mkdir" or done[place + 1] == ("fsync", os.path.dirname(folder)), (
            f"{folder} may be lost"
        )
    staged = [
        at
        for at, (what, where) in enumerate(done)
        if what == "fsync" and where.startswith("staging/")
    ]
    assert (
        len(staged) == 2
        and staged[0] < done.index(("rename", file))
        and staged[1] < done.index(("rename", manifest))
    )

    done.clear()
    bench.publish("toy", unit=True)
    assert [what for what, _ in done if what == "fsync"] == []
    assert bench.find("toy", unit=True) == b"toy"

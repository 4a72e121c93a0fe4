"""What the store finds, and what it does with what it cannot read: rule by rule."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.shelf import GIB, Bench, key, usage_is_true
from warmcc.daemon.closure.closure import Closure
from warmcc.daemon.store import Store


def quarantined(bench: Bench) -> list[str]:
    found = (path.name for path in (bench.store.root / "quarantine").iterdir())
    return sorted(name.rpartition("-")[0] for name in found)


def results(bench: Bench, name: str = "toy", *, unit: bool = False) -> list[str]:
    """The files of the results that are known under a key."""
    found = bench.store.results("unit" if unit else "artifact", key(name))
    return [result.file for result in found]


@contextlib.contextmanager
def made_meanwhile(bench: Bench, work: Callable[[], Any]) -> Iterator[Callable[[], Any]]:
    """What is done in the block is done while ``work`` waits for the store's lock."""
    with ThreadPoolExecutor(1) as pool:
        with bench.store._tree.lock:
            found = pool.submit(work)
            time.sleep(0.2)
            yield lambda: found.result()
        found.result()


class NoDescriptors:
    """Checks of closures; while they last, and after, the process may open nothing more."""

    def __init__(self) -> None:
        self.kept: list[int] = []
        self.limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    def holds(self, _closure: Closure) -> bool:
        used = max(int(name) for name in os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used, self.limits[1]))
        with contextlib.suppress(OSError):
            while True:
                self.kept.append(os.open("/dev/null", os.O_RDONLY))
        return True

    def release(self) -> None:
        while self.kept:
            os.close(self.kept.pop())
        resource.setrlimit(resource.RLIMIT_NOFILE, self.limits)


@pytest.fixture
def exhausted() -> Iterator[NoDescriptors]:
    checks = NoDescriptors()
    yield checks
    checks.release()


def test_a_result_that_does_not_hold_is_passed_over(bench: Bench) -> None:
    _, path = bench.publish("toy", b"old", bench.depend("a", "1"))
    bench.publish("toy", b"new", bench.depend("b", "1"))
    bench.depend("b", "2")
    found = bench.store.find("artifact", key("toy"), bench.closures)
    assert found is not None
    assert found[1] == path
    assert found[0].file == key("old")


def test_what_is_found_is_used_now(bench: Bench) -> None:
    bench.publish("toy")
    for again in range(2):
        bench.used("toy", 1000)
        assert bench.find("toy") == b"toy"
        assert time.time() - bench.manifest("toy").stat().st_mtime < 100, again


def test_what_is_found_behind_another_comes_in_front(bench: Bench) -> None:
    one, other = bench.depend("a", "1"), bench.depend("b", "1")
    bench.publish("toy", b"one", one)
    bench.publish("toy", b"other", other)
    bench.publish("toy", b"third", bench.depend("c", "1"))
    bench.depend("b", "2")
    bench.depend("c", "2")
    bench.used("toy", 1000)
    assert bench.find("toy") == b"one"
    assert results(bench) == [key("one"), key("third"), key("other")]
    assert time.time() - bench.manifest("toy").stat().st_mtime < 100
    assert usage_is_true(bench.store)


def test_a_hit_needs_no_room_on_the_disk(bench: Bench) -> None:
    """That its place in the order cannot be written is no reason to miss."""
    bench.publish("toy", b"one", bench.depend("a", "1"))
    bench.publish("toy", b"other", bench.depend("b", "1"))
    bench.depend("b", "2")
    folder = bench.store.root / "staging"
    folder.rmdir()
    folder.touch()
    assert bench.find("toy") == b"one"
    assert results(bench) == [key("other"), key("one")]


def test_a_result_whose_file_is_gone_is_forgotten_and_the_others_are_not(bench: Bench) -> None:
    _, path = bench.publish("toy", b"one", bench.depend("a", "1"))
    bench.publish("toy", b"other", bench.depend("b", "1"))
    bench.depend("b", "2")
    path.unlink()
    assert bench.find("toy") is None
    assert results(bench) == [key("other")]
    assert quarantined(bench) == []


def test_a_damaged_file_is_forgotten_and_kept_as_evidence(bench: Bench) -> None:
    result, path = bench.publish("toy", b"content")
    path.write_bytes(b"damaged")
    assert bench.find("toy") is None
    assert results(bench) == []
    assert quarantined(bench) == [f"artifacts-{result.file[:2]}-{result.file}-toy.so"]
    assert bench.store.quarantined == bench.store.usage()["quarantined"] == 1
    assert usage_is_true(bench.store)


def test_a_damaged_file_is_a_miss_when_nothing_can_be_written(bench: Bench) -> None:
    """A full disk is no reason to fail."""
    _, path = bench.publish("toy", b"content")
    path.write_bytes(b"damaged")
    folder = bench.store.root / "staging"
    folder.rmdir()
    folder.touch()
    assert bench.find("toy") is None


def test_what_was_found_a_moment_ago_is_in_use(bench: Bench) -> None:
    _, path = bench.publish("toy", b"content")
    store = Store(bench.store.root, GIB, grace=60.0)
    assert store.find("artifact", key("toy"), bench.closures) is not None
    assert store.prune(0)["files"] == 0
    assert path.read_bytes() == b"content"


def test_a_result_that_was_published_again_meanwhile_is_not_forgotten(bench: Bench) -> None:
    """While a thread that met a damaged file waits for the lock, another makes it good."""
    result, path = bench.publish("toy", b"content")
    path.write_bytes(b"damaged")
    with made_meanwhile(bench, lambda: bench.find("toy")) as found:
        path.write_bytes(b"content")
    assert found() is None
    assert results(bench) == [result.file]
    assert quarantined(bench) == []


def test_a_file_that_cannot_be_looked_at_now_is_a_miss_and_stays(
    bench: Bench, exhausted: NoDescriptors
) -> None:
    """Too many open files say nothing about it."""
    bench.publish("toy", b"content")
    assert bench.store.find("artifact", key("toy"), exhausted) is None
    assert bench.store.results("artifact", key("toy")) == []
    exhausted.release()
    assert bench.find("toy") == b"content"
    assert bench.store.quarantined == 0


def test_looking_again_at_what_cannot_be_looked_at_says_nothing(
    bench: Bench, exhausted: NoDescriptors
) -> None:
    result, path = bench.publish("toy", b"content")
    exhausted.holds(Closure())
    bench.store.look_again(result)
    exhausted.release()
    path.unlink()
    bench.store.look_again(result)
    assert bench.find("toy") is None


@pytest.mark.parametrize("kind", ["artifact", "unit", "step", "kernel"])
def test_nothing_is_known_under_another_kind(kind: str, bench: Bench) -> None:
    bench.publish("toy")
    found = bench.store.results(kind, key("toy"))  # type: ignore[arg-type]
    assert bool(found) == (kind == "artifact")


def test_a_manifest_that_cannot_be_read_is_set_aside_once(bench: Bench) -> None:
    path = bench.manifest("toy")
    path.mkdir(parents=True)
    assert results(bench) == []
    assert quarantined(bench) == [f"results-artifact-{key('toy')[:2]}-{key('toy')}"]
    assert results(bench) == []
    assert bench.store.quarantined == 1


def test_a_damaged_manifest_is_nothing_and_kept_as_evidence(bench: Bench) -> None:
    bench.publish("toy")
    bench.manifest("toy").write_bytes(b"damaged")
    assert results(bench) == []
    assert quarantined(bench) == [f"results-artifact-{key('toy')[:2]}-{key('toy')}"]
    bench.publish("toy")
    assert bench.find("toy") == b"toy"


def test_a_manifest_that_was_made_good_meanwhile_is_read_again(bench: Bench) -> None:
    bench.publish("toy")
    path = bench.manifest("toy")
    whole = path.read_bytes()
    path.write_bytes(b"damaged")
    with made_meanwhile(bench, lambda: results(bench)) as found:
        path.write_bytes(whole)
    assert found() == [key("toy")]
    path.write_bytes(b"damaged")
    with made_meanwhile(bench, lambda: results(bench)) as found:
        path.unlink()
    assert found() == []
    assert bench.store.quarantined == 0


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_busy_machine_is_no_reason_to_set_a_manifest_aside(
    code: int, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.publish("toy")

    def busy(*_given: object, **_named: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", busy)
        assert bench.store.results("artifact", key("toy")) == []
    assert bench.store.quarantined == 0
    assert bench.find("toy") == b"toy"

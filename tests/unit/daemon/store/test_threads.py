"""Threads that publish, find and prune the same keys at once."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from tests.support.shelf import Bench, key, usage_is_true
from warmcc.daemon.closure.closure import Closure, Closures
from warmcc.daemon.closure.header_watch import HeaderWatch
from warmcc.daemon.store import Store


def in_eight_threads(work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_eight_threads(bench: Bench) -> None:
    """Publishing, finding, pruning and looking at the same few keys at once: what is found is
    always right.
    """
    bench.store = Store(bench.store.root, 20_000, grace=600.0)
    bench.watch = HeaderWatch(bench.store.get_headers)
    bench.closures = Closures(bench.store, bench.watch)
    contents = {f"{number}": random.Random(number).randbytes(2000) for number in range(12)}
    closures = {
        name: Closure(headers=[bench.header_set(f"include-{int(name) % 3}")]) for name in contents
    }
    errors: list[BaseException] = []
    hits = [0] * 8

    def work(thread: int) -> None:
        rng = random.Random(thread)
        try:
            for _ in range(60):
                name = rng.choice(list(contents))
                action = rng.randrange(10)
                if action < 4:
                    _, path = bench.publish(
                        name, contents[name], closures[name], unit=rng.random() < 0.5
                    )
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

    in_eight_threads(work)
    assert errors == []
    assert sum(hits) > 20
    assert bench.store.quarantined == 0
    whole = bench.store.verify()
    assert (whole["damaged"], whole["removed"]) == (0, 0)
    assert usage_is_true(bench.store)
    assert list((bench.store.root / "staging").iterdir()) == []


def test_eight_threads_without_grace(bench: Bench) -> None:
    """Nothing is pinned, so files go at any moment: a miss, never an error and never something
    else.
    """
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

    in_eight_threads(work)
    assert errors == []
    assert bench.store.verify()["damaged"] == bench.store.quarantined == 0
    assert usage_is_true(bench.store)

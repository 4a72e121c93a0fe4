"""Module names within a process: stock's numbers, without its waste."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tests.support import calls
from warmcc.client.calls.variants import Variants, content


def build(variants: Variants, name: str, what: str, *, fails: bool = False) -> str:
    try:
        with variants.module_name(name, what) as module_name:
            if fails:
                raise RuntimeError
    except RuntimeError:
        assert fails
    return module_name


def test_numbers_are_stocks() -> None:
    variants = Variants()
    assert [build(variants, "x", what) for what in "ABACB"] == ["x", "x_v1", "x", "x_v2", "x_v1"]
    assert build(variants, "y", "A") == "y"


def test_a_failed_build_uses_no_number() -> None:
    variants = Variants()
    assert build(variants, "x", "broken", fails=True) == "x"
    assert build(variants, "x", "mended") == "x"
    assert build(variants, "x", "broken again", fails=True) == "x_v1"
    assert build(variants, "x", "other") == "x_v1"
    assert build(variants, "x", "mended", fails=True) == "x"
    assert build(variants, "x", "mended") == "x"


def test_builds_at_the_same_time_get_different_names_unless_they_are_equal() -> None:
    variants = Variants()
    barrier = threading.Barrier(12)
    names: list[tuple[str, str]] = []

    def one(what: str) -> None:
        with variants.module_name("x", what) as module_name:
            names.append((what, module_name))
            barrier.wait()

    threads = [threading.Thread(target=one, args=[what]) for what in "ABCD" * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(names)) == 4
    assert {name for _, name in names} == {"x", "x_v1", "x_v2", "x_v3"}
    assert all(build(variants, "x", what) == name for what, name in names)


def test_a_child_of_fork_does_not_wait_for_threads_that_it_has_not() -> None:
    variants = Variants()
    with variants.module_name("x", "A"), variants._lock:
        variants.forked()  # what a child does; the lock above is never let go of there
        assert build(variants, "x", "B") == "x"


def test_what_makes_a_variant(tmp_path: Path) -> None:
    one = content(calls.request(), None)
    assert content(calls.request(), None) == one
    assert content(calls.request(verbose=True, keep_intermediates=False, use_pch=True), None) == one
    assert content(calls.request(environment={"PATH": "/elsewhere"}), None) == one
    others = [
        content(calls.request(), "/some/directory"),
        content(calls.request(extra_cflags=["-O3"]), None),
        content(calls.request(is_python_module=False), None),
        content(calls.request(functions={"a": "", "b": ""}), None),
        content(calls.request(functions={"b": "", "a": ""}), None),
    ]
    assert len({one, *others}) == 6


def test_source_files_count_by_content(tmp_path: Path) -> None:
    path = tmp_path / "a.cpp"
    path.write_text("int a;")
    one = content(calls.load_request([path]), None)
    os.utime(path, (1, 1))
    assert content(calls.load_request([path]), None) == one
    path.write_text("int b;")
    assert content(calls.load_request([path]), None) != one
    path.unlink()
    with pytest.raises(FileNotFoundError):
        content(calls.load_request([path]), None)

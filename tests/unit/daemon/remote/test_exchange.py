"""What one machine gives, another one takes: if it holds there, and is what was given."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import calls
from tests.support.closures import Project
from tests.support.exchanging import CONTENT, KEY, META, Machine, headers
from warmcc.daemon.remote import offers, portable
from warmcc.daemon.remote.exchange import NotShared
from warmcc.daemon.remote.places import Trouble
from warmcc.daemon.store import REQUEST


def test_what_one_gives_another_takes(giver: Machine, taker: Machine) -> None:
    assert taker.take() == CONTENT
    (result,) = taker.store.results("artifact", KEY)
    (given,) = giver.store.results("artifact", KEY)
    assert result.closure == given.closure, "both have the same headers, with the same times"
    assert (result.name, result.file, result.size) == (given.name, given.file, given.size)
    assert result.meta["way"] == "lean way" and result.meta["sources"] == META["sources"]
    assert result.meta[REQUEST]["name"] == "ext", "its own request, from which bundles are made"
    stored = b"".join(path.read_bytes() for path in giver.remote.rglob("*") if path.is_file())
    assert b"private" not in stored


def test_nothing_is_there(taker: Machine) -> None:
    assert taker.take() is None


def test_headers_with_other_times_are_the_same(giver: Machine, taker: Machine) -> None:
    """As on a machine on which the same compiler and torch were installed at another time."""
    for path in headers(taker.project):
        os.utime(path, ns=(10**18, 10**18))
    assert taker.take() == CONTENT
    (result,) = taker.store.results("artifact", KEY)
    (given,) = giver.store.results("artifact", KEY)
    assert result.closure.headers != given.closure.headers
    assert taker.closures.holds(result.closure)


def test_a_header_with_another_content_is_another(giver: Machine, taker: Machine) -> None:
    """Of the same size, and with the same time."""
    path = next(headers(taker.project))
    found = path.stat()
    path.write_text(path.read_text()[:-1] + "#")
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert taker.take() is None


@pytest.mark.parametrize(
    "change",
    [
        lambda project: project.write("src/ext.cpp"),
        lambda project: project.write("src/own.h"),
        lambda project: project.write("include/lib/deep/far.h"),
        lambda project: project.write("first/lib/used.h"),
        lambda project: project.write("first/plain.h"),
        lambda project: project.write("toolchain/torch/vector"),
        lambda project: project.write("toolchain/torch/theirs.h"),
        lambda project: project.write("include/asked/for.h"),
        lambda project: (project.root / "src/own.h").unlink(),
        lambda project: next(headers(project)).unlink(),
    ],
)
def test_what_differs_is_a_miss(
    change: Callable[[Project], Any], giver: Machine, taker: Machine
) -> None:
    change(taker.project)
    assert taker.take() is None
    assert taker.store.usage()["artifacts"]["count"] == 0


def test_a_known_header_set_is_not_read_again_unless_it_changed(
    giver: Machine, taker: Machine
) -> None:
    assert taker.take() == CONTENT
    for path in taker.files("headers"):
        path.unlink()
    assert taker.take() == CONTENT
    next(headers(taker.project)).write_text("new")
    with pytest.raises(Trouble, match="is missing"):
        taker.take()


def test_several_results_are_offered_under_one_key(giver: Machine, taker: Machine) -> None:
    """Such as of two branches, whose headers differ."""
    before = (giver.project.root / "src/own.h").read_text()
    giver.project.write("src/own.h", "// a branch")
    assert taker.take() is None
    taker.build(b"of the branch")
    assert taker.give()
    assert giver.take() == b"of the branch"
    giver.project.write("src/own.h", before)
    assert taker.take() == CONTENT
    assert taker.give()
    (path,) = giver.files("results")
    assert len(offers.unpacked(path.read_bytes())) == 2, "one of them was given twice"


def test_what_has_changed_since_is_not_given(taker: Machine) -> None:
    taker.build()
    taker.project.write("src/own.h")
    assert not taker.give()
    assert not taker.files("results")


def test_what_a_distrusted_maker_made_is_not_taken(giver: Machine, taker: Machine) -> None:
    taker.trust.withdraw("lean-1", "it differs")
    assert taker.take() is None


# ---------------------------------------------------------------------- keys


def test_the_key_has_the_contents_of_sources() -> None:
    request = calls.load_request([Path("/src/a.cpp")])
    key = portable.key_of(request, KEY, {"/src/a.cpp": "1"})
    assert key != portable.key_of(request, KEY, {"/src/a.cpp": "2"})
    assert key != portable.key_of(request, "ab" * 32, {"/src/a.cpp": "1"})
    assert key == portable.key_of(request, KEY, {"/src/a.cpp": "1", "/src/a.h": "3"})
    assert portable.key_of(request, KEY, {}) is None


def test_what_depends_on_an_unknown_machine_has_no_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, taker: Machine
) -> None:
    native = calls.request(extra_cflags=["-O3", "-march=native"])
    assert portable.key_of(native, KEY, {}) is not None
    monkeypatch.setattr("warmcc.daemon.toolchain.processor.identity", lambda: "")
    assert portable.key_of(native, KEY, {}) is None
    with pytest.raises(NotShared):
        taker.exchange.take(native, KEY)
    cuda = calls.request(cuda_sources=["__global__ void f() {}"])
    monkeypatch.setattr(portable, "_DEVICES", tmp_path)
    assert portable.key_of(cuda, KEY, {}) is not None
    monkeypatch.setattr(portable, "gpus", list)
    (tmp_path / "nvidia0").touch()
    assert portable.key_of(cuda, KEY, {}) is None
    assert portable.key_of(calls.request(), KEY, {}) is not None

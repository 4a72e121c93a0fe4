"""The store of results: a folder, and what fsspec reaches; damage in it is seen."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest

from warmcc import digest
from warmcc.client.prebuild.results import Results
from warmcc.errors import RequestError

numbers = itertools.count()
JOB = digest.of_bytes(b"job")


@pytest.fixture(params=["folder", "file://", "memory://"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Results:
    if request.param == "folder":
        return Results(str(tmp_path / "store"))
    pytest.importorskip("fsspec")
    if request.param == "file://":
        return Results(f"file://{tmp_path}/store")
    return Results(f"memory://{next(numbers)}")


def test_what_was_put_is_there(store: Results) -> None:
    name = store.put(b"object")
    assert name == digest.of_bytes(b"object")
    assert store.get(name) == b"object"
    assert store.put(b"object") == name
    assert store.noted(JOB) is None
    store.note(JOB, {"digest": name, "seconds": 1.5})
    assert store.noted(JOB) == {"digest": name, "seconds": 1.5}
    for other in (digest.of_bytes(b"other"), "../noted", ""):
        assert store.get(other) is None


def test_damage_is_nothing(store: Results) -> None:
    name = store.put(b"object")
    for damage in (b"objecT", b"obj", b""):
        store._files.write(f"objects/{name}", damage)
        assert store.get(name) is None
    assert store.put(b"object") == name and store.get(name) == b"object"
    for record in (b"{", b"[]", b'{"digest": "../x"}', b"{}", b"\xff", b"[" * 100_000):
        store._files.write(f"noted/{JOB}", record)
        assert store.noted(JOB) is None


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        Results(str(tmp_path / "file")).put(b"object")


def test_urls_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(RequestError, match=r"nosuch://x cannot be used: .*nosuch"):
        Results("nosuch://x")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(RequestError, match="pip install fsspec, or name a folder"):
        Results("s3://bucket")

"""A new cache begins as a copy of another one, on real folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from warmcc.daemon.store import baked
from warmcc.errors import DaemonError


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A cache as a daemon leaves it."""
    folder = tmp_path / "image"
    for name, content in {
        "daemon.lock": "process 1", "contents": "c", "tmp/left": "x", "beside/1/store/x": "x",
        "store/results/unit/aa/key": "manifest", "store/staging/a/b": "x", "store/objects/bb": "o",
        "profiles/one/prelude.h": "h", "profiles/one/prelude.h.gch": "large",
        "cuda/servers/1/text": "x", "cuda/host/two/prelude.h.gch": "large",
    }.items():  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
        os.utime(folder / name, (1000, 1000))
    folder.chmod(0o755)
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    (tmp_path / "cache").mkdir(mode=0o700)
    return tmp_path / "cache"


def files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*") if path.is_file()
    }  # fmt: skip


KEPT = {
    "contents": "c", "store/results/unit/aa/key": "manifest", "store/objects/bb": "o",
    "profiles/one/prelude.h": "h", "profiles/one/prelude.h.gch": "large",
    "cuda/host/two/prelude.h.gch": "large",
}  # fmt: skip


def test_all_that_serves_is_there(image: Path, cache: Path) -> None:
    assert baked.begin(cache, str(image))
    assert files(cache) == KEPT
    linked = {path.name for path in cache.rglob("*") if path.is_symlink()}
    assert linked == {"prelude.h.gch"}
    manifest = cache / "store/results/unit/aa/key"
    assert manifest.stat().st_mtime == 1000, "when it was last used"
    assert manifest.parent.stat().st_mode & 0o777 == 0o700
    manifest.write_text("another")
    assert files(image)["store/results/unit/aa/key"] == "manifest"


def test_a_cache_that_was_used_stays(image: Path, cache: Path) -> None:
    (cache / "store").mkdir()
    assert not baked.begin(cache, str(image))
    assert files(cache) == {}
    assert not baked.begin(cache, ""), "nor is there anything without the setting"


def test_a_start_that_was_killed_is_begun_again(image: Path, cache: Path) -> None:
    for name in ("baked.draft/profiles/one/x", "profiles/half/prelude.h"):
        (cache / name).parent.mkdir(parents=True)
        (cache / name).touch()
    assert baked.begin(cache, str(image))
    assert files(cache) == KEPT


def test_a_disk_that_is_full_leaves_an_empty_cache(
    image: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copy2", full)
    assert not baked.begin(cache, str(image))
    assert list(cache.iterdir()) == []
    assert "the cache begins empty" in caplog.text and "No space left" in caplog.text


@pytest.mark.parametrize(
    ("mode", "said"), [(0o775, "other users"), (0o757, "other users"), (0o755, "")]
)
def test_who_may_have_written_it(image: Path, cache: Path, mode: int, said: str) -> None:
    image.chmod(mode)
    if not said:
        assert baked.begin(cache, str(image))
        return
    with pytest.raises(DaemonError, match=said):
        baked.begin(cache, str(image))
    assert list(cache.iterdir()) == []


def test_what_is_no_cache_is_said(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(DaemonError, match=r"baked: .*none cannot be read: No such file"):
        baked.begin(cache, str(tmp_path / "none"))
    with pytest.raises(DaemonError, match=r"is not a cache; fill one: WARMCC_CACHE_DIR="):
        baked.begin(cache, str(cache))

"""What can be packed: an answer that the store has kept, of the torch that is still there."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.support.calls import load_request, request
from warmcc.client.bundles import drafts, packing, recording
from warmcc.errors import BundleError
from warmcc.protocol import Built


def built(path: Path, **more: object) -> Built:
    path.write_bytes(b"\x7fELF")
    return Built(1, str(path), "miss", 0.0, **{"kept": True, **more})


def test_what_the_store_has_not_kept(tmp_path: Path) -> None:
    """The files of such an answer are not known."""
    with pytest.raises(BundleError, match="'tiny' cannot be packed: a file of it changed while it"):
        drafts.draft(request(), built(tmp_path / "tiny.so", kept=False))


def test_a_source_whose_content_is_not_known(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"'tiny' cannot be packed: /k\.cpp is in the toolchain"):
        drafts.draft(load_request([Path("/k.cpp")]), built(tmp_path / "tiny.so"))


def test_another_torch_than_the_one_that_it_was_built_for(tmp_path: Path) -> None:
    made = drafts.draft(request(), built(tmp_path / "tiny.so"), [1, 2, 3, 4, 5])
    with pytest.raises(BundleError, match="torch was installed again since 'tiny' was built"):
        packing.write(str(tmp_path / "a.tar"), [made], None)
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.so"]


def test_a_file_that_is_no_shared_object(tmp_path: Path) -> None:
    made = drafts.draft(request(), built(tmp_path / "tiny.so"))
    with pytest.raises(BundleError, match=r"tiny\.so is not a shared object that can be packed"):
        packing.write(str(tmp_path / "a.tar"), [made], None)


def test_a_record_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(recording.VARIABLE, str(tmp_path / "none"))
    with pytest.raises(BundleError, match=r"'tiny' cannot be recorded: .*No such file"):
        recording.keep(request(), built(tmp_path / "tiny.so"))
    with pytest.raises(BundleError, match="'tiny' cannot be recorded: No such file"):
        recording.left("tiny")


def test_a_python_that_has_another_torch(tmp_path: Path) -> None:
    there = msgspec.structs.replace(request().interpreter, torch_dir=str(tmp_path))
    made = drafts.draft(request(interpreter=there), built(tmp_path / "tiny.so"))
    with pytest.raises(BundleError, match=f"has torch in .*, and not in {tmp_path} as the call"):
        packing.write(str(tmp_path / "a.tar"), [made], None)


def test_a_python_that_does_not_run(tmp_path: Path) -> None:
    there = msgspec.structs.replace(request().interpreter, executable=str(tmp_path / "python"))
    made = drafts.draft(request(interpreter=there), built(tmp_path / "tiny.so"))
    with pytest.raises(BundleError, match="does not say which torch it has"):
        packing.write(str(tmp_path / "a.tar"), [made], None)

"""Groups of Triton's cache in a bundle."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from warmcc.client.bundles import triton_groups


def group(folder: Path, key: str, name: str, files: dict[str, bytes]) -> None:
    place = folder / key
    place.mkdir(parents=True, exist_ok=True)
    for file, data in files.items():
        (place / file).write_bytes(data)
    children = {file: str(place / file) for file in files}
    (place / f"__grp__{name}").write_text(json.dumps({"child_paths": children}))


def test_only_complete_groups_are_collected(tmp_path: Path) -> None:
    files = {"kernel.json": b"{}", "kernel.cubin": b"\0code"}
    group(tmp_path, "ONE", "kernel.json", files)
    group(tmp_path, "TWO", "kernel.json", files)
    (tmp_path / "TWO" / "kernel.cubin").unlink()
    group(tmp_path, "THREE", "kernel.json", files)
    (tmp_path / "THREE" / "__grp__kernel.json").write_text('{"child')
    path = tmp_path / "groups"
    path.write_bytes(triton_groups.collected(tmp_path))
    assert triton_groups.read(str(path)) == {"ONE": {"kernel.json": files}}
    assert triton_groups.collected(tmp_path / "none") == b""


@pytest.mark.parametrize("name", ["../other", "a/b", "..", ".", "", "a\0", "/a"])
def test_a_name_stays_in_its_folder(name: str, tmp_path: Path) -> None:
    path = tmp_path / "groups"
    for damaged in ({name: {"g": {"f": b""}}}, {"k": {name: {}}}, {"k": {"g": {name: b""}}}):
        path.write_bytes(msgspec.msgpack.encode(damaged))
        with pytest.raises(msgspec.ValidationError):
            triton_groups.read(str(path))

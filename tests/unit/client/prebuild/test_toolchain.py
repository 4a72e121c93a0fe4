"""What tells whether a result of before still is what would be built."""

from __future__ import annotations

from pathlib import Path

from tests.support.calls import request
from warmcc.client.prebuild import toolchain


def test_what_changes_the_identity(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("given", "flagged", "system", "variable")]
    for folder in folders:
        folder.mkdir()
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\necho 'own c++ 1.0'\n")
    compiler.chmod(0o755)

    def identity(**more: str) -> str:
        wanted = request(
            extra_include_paths=[str(folders[0])],
            extra_cflags=[f"-I{folders[1]}", "-isystem", str(folders[2])],
            environment={"CXX": str(compiler), "CPATH": str(folders[3]), **more},
        )
        assert toolchain.versions(wanted)["c++"].startswith("own c++")
        return toolchain.identity(wanted)

    before = identity()
    assert identity() == before == identity(HOME="/other", MAX_JOBS="3")
    assert identity(LIBRARY_PATH="/x") != before
    for folder in folders:
        (folder / "sub").mkdir()
        (folder / "sub" / "new.h").write_text("")
        assert identity() != before
        before = identity()
    compiler.write_text("#!/bin/sh\necho 'own c++ 1.0.1'\n")
    assert identity() != before

"""Copies in the build directory: whole or not at all, and untouched when they are right."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from warmcc.client.loading import loader
from warmcc.client.loading.loader import place
from warmcc.protocol import BUILD_DIRECTORY, Built


def artifact(folder: Path, content: bytes = b"ELF", name: str = "x.so") -> Built:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
    (folder / name).chmod(0o500)
    sources = {
        "main.cpp": "int größe;\n",
        "build.ninja": f"build {BUILD_DIRECTORY}/main.o: compile\n",
    }
    return Built(1, str(folder / name), "hit", 0.0, sources=sources)


def state(folder: Path) -> dict[str, tuple[int, int]]:
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir()}


def test_copies_are_placed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    built = artifact(tmp_path / "store")
    assert place(built, str(out)) == str(out / "x.so")
    assert (out / "x.so").read_bytes() == b"ELF"
    assert (out / "main.cpp").read_text(encoding="utf-8") == "int größe;\n"
    assert (out / "build.ninja").read_text() == f"build {out}/main.o: compile\n"
    assert not (out / "x.so").samefile(built.path)
    assert sorted(path.name for path in out.iterdir()) == ["build.ninja", "main.cpp", "x.so"]


def test_a_relative_directory_gives_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("out").mkdir()
    assert place(artifact(tmp_path / "store"), "out") == "out/x.so"
    assert Path("out/build.ninja").read_text() == f"build {tmp_path}/out/main.o: compile\n"


def test_modes_follow_the_umask_and_programs_can_run(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    before = os.umask(0o027)
    try:
        place(artifact(tmp_path / "store"), str(out))
    finally:
        os.umask(before)
    assert (out / "x.so").stat().st_mode & 0o777 == 0o750
    assert (out / "main.cpp").stat().st_mode & 0o777 == 0o640


def test_right_copies_are_left_alone_and_wrong_ones_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    built = artifact(tmp_path / "store")
    place(built, str(out))
    before = state(out)
    place(built, str(out))
    assert state(out) == before
    (out / "main.cpp").write_text("somebody's edit")
    os.utime(out / "x.so", ns=(1, 1))
    place(built, str(out))
    after = state(out)
    assert after["build.ninja"] == before["build.ninja"]
    assert after["x.so"][0] != before["x.so"][0], (
        "a copy that is mapped somewhere must not be written into"
    )
    assert after["main.cpp"] != before["main.cpp"]


_opened: list[str] | None = None


def _listen(event: str, given: tuple[object, ...]) -> None:
    if event == "open" and _opened is not None:
        _opened.append(str(given[0]))


sys.addaudithook(_listen)


def opened(built: Built, out: Path) -> int:
    """How many files it opens to place copies."""
    global _opened
    _opened = []
    try:
        place(built, str(out))
        return len(_opened)
    finally:
        _opened = None


@pytest.mark.parametrize("changed", ["x.so", "main.cpp", "artifact", "folder"])
def test_copies_that_were_compared_are_not_read_again(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    built = artifact(tmp_path / "store")
    place(built, str(out))
    assert [opened(built, out), opened(built, out)] == [2, 2], "they are too young to be certain of"
    monkeypatch.setattr(loader, "_STEP", 0)
    assert [opened(built, out), opened(built, out)] == [2, 0]
    if changed == "folder":
        shutil.rmtree(out)
    elif changed == "artifact":
        Path(built.path).chmod(0o700)
        Path(built.path).write_bytes(b"BIN")
    else:
        (out / changed).unlink()
        (out / changed).write_text("somebody's")
    place(built, str(out))
    assert (out / "x.so").read_bytes() == Path(built.path).read_bytes()
    assert (out / "main.cpp").read_text(encoding="utf-8") == "int größe;\n"
    assert (out / "build.ninja").read_text() == f"build {out}/main.o: compile\n"


def test_the_file_for_ninja_is_looked_at_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "_STEP", 0)
    out = tmp_path / "out"
    out.mkdir()
    built = artifact(tmp_path / "store")
    place(built, str(out))
    place(built, str(out))
    (out / "build.ninja").write_text("somebody's")
    place(built, str(out))
    assert (out / "build.ninja").read_text() == "somebody's"
    (out / "main.cpp").unlink()
    place(built, str(out))
    assert (out / "build.ninja").read_text() == f"build {out}/main.o: compile\n"


def test_another_build_of_the_same_size_is_seen(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    place(artifact(tmp_path / "one", b"111"), str(out))
    two = artifact(tmp_path / "two", b"222")
    os.utime(two.path, ns=(5, 5))
    place(two, str(out))
    assert (out / "x.so").read_bytes() == b"222"


def test_a_link_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (out / "x.so").symlink_to(victim)
    place(artifact(tmp_path / "store"), str(out))
    assert victim.read_text() == "precious"
    assert not (out / "x.so").is_symlink()


def test_a_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "x.so").mkdir()  # cannot be replaced by a file
    with pytest.raises(OSError):
        place(artifact(tmp_path / "store"), str(out))
    assert [path.name for path in out.iterdir()] == ["x.so"]


def test_names_stay_inside_the_directory(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    built = artifact(tmp_path / "store")
    built.sources["../evil.cpp"] = "x"
    place(built, str(out))
    assert not (tmp_path / "evil.cpp").exists()
